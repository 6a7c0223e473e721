"""Errors that a user can act on, and messages on the terminal."""

import difflib
import errno
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

MAX_COMPARED, MAX_LISTED, MAX_CHARACTERS = 200, 25, 800
"""The most characters of a name that are compared, the most names that a message lists, and the
most characters of such a list or of another library's message."""


CONTROLS = (
    *(*range(9), *range(11, 32), *range(127, 160)),
    *(*range(0x202A, 0x202F), *range(0x2066, 0x206A)),
)
"""What a name may contain to move a terminal's cursor, change its colours or reverse its text: all
control characters but tab and line feed, and those that set the direction of writing."""

ESCAPES = {code: ascii(chr(code))[1:-1] for code in CONTROLS}


MALFORMED_JSON = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading somebody else's JSON raises: damaged, of another form, or nested too deep."""


class UserError(Exception):
    """A request that cannot be met: one sentence that names the culprit and the way out."""


class Unavailable(UserError):
    """Data or pre-trained weights are missing on this machine and cannot be downloaded."""


def warn(sentence: str) -> None:
    """Warn of what a user may not have meant, on behalf of the function that calls the caller."""
    warnings.warn(sentence, stacklevel=3)


OF_FILES = {
    **dict.fromkeys(("EACCES", "EPERM"), "change its permissions, or give another path"),
    **dict.fromkeys(("ENOSPC", "EDQUOT"), "make room, or give a path on another disk"),
    **dict.fromkeys(("EROFS", "EIO", "ESTALE", "EFBIG"), "give a path on another disk"),
    **dict.fromkeys(("ENAMETOOLONG", "ELOOP", "EISDIR", "ENOTDIR"), "give another path"),
}
"""The errors by which a file cannot be used on this machine, and the way out of each."""

OF_WRITING = ("ENOSPC", "EDQUOT", "EFBIG")
"""The errors that name no file, as they are of one that is open."""


@contextmanager
def os_errors_reported() -> Iterator[None]:
    """Within the context, an error by which a file cannot be used on this machine is a UserError;
    others of the system, such as of a file that is missing, stay what they are."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        if name not in OF_FILES or not (error.filename or name in OF_WRITING):
            raise
        what = os.fsdecode(error.filename) if error.filename else "A file"
        raise UserError(
            f"{what:.300} cannot be used ({error.strerror}): {OF_FILES[name]}."
        ) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names closest to a misspelt one, or all of them, as the end of a sentence.

    Case is ignored. Names that contain the misspelt one as a whole part come first, such as
    optimizer.lr for lr; if some end with it, the others of these are left out. If none does, names
    come first whose last part begins with it, such as privacy.epsilon for eps.
    """
    names = sorted(known)
    misspelt = name[:MAX_COMPARED].lower()
    by_lower = {known_name.lower(): known_name for known_name in names}
    whole = _parts(misspelt)
    containing = [known_name for known_name in by_lower if whole in _parts(known_name)]
    ending = [known_name for known_name in containing if _parts(known_name).endswith(whole)]
    longer = [n for n in by_lower if len(misspelt) > 2 and n.split(".")[-1].startswith(misspelt)]
    close = difflib.get_close_matches(misspelt, by_lower, n=3, cutoff=0.5)
    best = dict.fromkeys([*(ending or containing or longer), *close])
    matches = [by_lower[name] for name in [*best][:3]]
    if not names:
        return "there are none."
    if matches:
        return f"did you mean {' or '.join(map(spaced, matches)):.{MAX_CHARACTERS}}?"
    count = min(len(names), MAX_LISTED)
    while count > 1 and len(", ".join(names[:count])) > MAX_CHARACTERS:
        count -= 1
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return f"choose from {', '.join(map(spaced, names[:count])):.{MAX_CHARACTERS}}{more}."


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 claim`, `2,000 claims`. plural: the noun's, unless that has an s more."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def spaced(name: str) -> str:
    """The name, in quotes if it begins or ends with spaces, which nobody would see."""
    return name if name == name.strip() else repr(name)


def _parts(name: str) -> str:
    """The name with dots as its only separators, and one at either end."""
    return f".{re.sub('[_-]', '.', name)}."


def first_line(error: BaseException, default: str = "") -> str:
    """The first line of an error's message, truncated where it is long; the default without one."""
    return next(iter(str(error).strip().splitlines()), default)[:MAX_CHARACTERS]


def visible(text: str) -> str:
    """The text with an escape such as \\x1b for each character that controls a terminal."""
    return text.translate(ESCAPES)


def print_message(message: object) -> None:
    """Print a message to standard error; standard output is for results."""
    with suppress(OSError, ValueError):  # a closed terminal must not stop a run
        if sys.stderr:
            print(visible(f"dpbench: {message}"), file=sys.stderr, flush=True)


def show_warnings_as_messages() -> None:
    """Print the warnings of this process as messages, each once, as the runs of a sweep share most
    of them, and without the line of code they come from."""
    told: set[str] = set()

    def show(message, category, *_) -> None:
        if (text := str(message)) not in told:
            told.add(text)
            print_message(text)

    warnings.showwarning = show  # type: ignore[assignment]
