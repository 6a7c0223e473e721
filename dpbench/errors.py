"""What a user reads when a request cannot be met."""

import difflib
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress

LONGEST, MOST_NAMES = 200, 25
"""Characters of a name that are compared with others, and names that a sentence lists."""


class UserError(Exception):
    """A request that cannot be met: one sentence that names the culprit and the way out."""


class Unavailable(UserError):
    """What a run needs and this machine neither has nor can get: data, or pre-trained weights."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names closest to a misspelt one, as the end of a sentence."""
    names = sorted(known)
    close = difflib.get_close_matches(name[:LONGEST], names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"there are {', '.join(names[:MOST_NAMES])}{more}."


def tell(what: object) -> None:
    """Say something to the user, beside what a command prints for programs."""
    with suppress(OSError, ValueError):  # nobody listens, and that stops no run
        if sys.stderr:
            print(f"dpbench: {what}", file=sys.stderr, flush=True)


def say_warnings_in_one_line() -> None:
    """Write warnings of this process as a user reads them: a sentence, and no line of code."""

    def show(message, category, *_) -> None:
        tell(message)

    warnings.showwarning = show  # type: ignore[assignment]
