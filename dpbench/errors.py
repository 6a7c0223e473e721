"""What a user reads when a request cannot be met."""

import difflib
import sys
import warnings
from collections.abc import Iterable


class UserError(Exception):
    """A request that cannot be met: one sentence that names the culprit and the way out."""


class Unavailable(UserError):
    """What a run needs and this machine neither has nor can get: data, or pre-trained weights."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names closest to a misspelt one, as the end of a sentence."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(names)}."


def positive(what: str, value: float) -> float:
    """The value itself, if it is a positive number; otherwise a UserError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UserError(f"{what} must be a positive number, got {value!r}.")
    return value


def whole(what: str, value: object, least: int = 1) -> None:
    """Refuse what is not a whole number from `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{what} must be a whole number from {least}, got {value!r}.")


def say_warnings_in_one_line() -> None:
    """Write warnings of this process as a user reads them: a sentence, and no line of code."""

    def show(message, category, *_) -> None:
        print(f"dpbench: {message}", file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]
