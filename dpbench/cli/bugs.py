"""How a command ends that nobody foresaw: in one sentence, and with the traceback in a file."""

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, TextIO

import dpbench
from dpbench.errors import UserError, tell
from dpbench.validate import quoted

FAILED = 1
"""Exit code: it was tried. What is refused beforehand has 2."""

UNREAD = 141
"""Exit code: nobody reads the output any more. What shells say of a program that SIGPIPE ended."""


def check_words(words: list[str]) -> None:
    """UserError for an argument that is no text: it could be neither printed nor kept."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UserError(f"{quoted(word)} is not UTF-8: rename it, or give another.") from None


class Unwritten(Exception):
    """The standard output does not take what it is given."""


class Output:
    """A stream whose errors are known for what they are."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        # A terminal that cannot show a letter is no reason to lose the table that it is in.
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        with _known():
            return self._stream.write(text)

    def flush(self) -> None:
        with _known():
            self._stream.flush()

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


@contextmanager
def _known() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unwritten from error


@contextmanager
def reported() -> Iterator[None]:
    """Around a command: it prints all that it has to say, or ends with the reason, and a code.

    UserError, KeyboardInterrupt and SystemExit go through.
    """
    with _output() as output:
        try:
            try:
                yield
            finally:
                if output:
                    output.flush()
        except UserError:
            raise
        except Unwritten as error:
            _end_without_output(error.__cause__)
        except Exception as error:
            _end(error)


@contextmanager
def _output() -> Iterator[Output | None]:
    """The standard output in its place, if there is one."""
    before = sys.stdout
    output = Output(before) if before else None
    try:
        sys.stdout = output  # type: ignore[assignment]
        yield output
    finally:
        sys.stdout = before


def _end_without_output(error: BaseException | None) -> NoReturn:
    with suppress(OSError):  # what is left in the buffer goes nowhere, and nobody is told of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(UNREAD)
    assert isinstance(error, OSError)
    tell(f"the output cannot be written ({error.strerror}).")
    sys.exit(FAILED)


def _end(error: Exception) -> NoReturn:
    from dpbench.memory import ran_out

    if ran_out(error):
        tell("memory ran out: use a smaller model, physical_batch_size=auto, or fewer jobs.")
        sys.exit(FAILED)
    first = " ".join(str(error).split("\n")[0].split())[:200]
    tell(
        f"nobody foresaw {type(error).__name__}: {first}; please report this bug of dpbench with "
        f"{_written_down(error)}."
    )
    sys.exit(FAILED)


def _written_down(error: Exception) -> str:
    """The traceback in a file of its own, and where; on the standard error where there is none."""
    text = "".join(traceback.format_exception(error))
    versions = f"dpbench {dpbench.__version__}, Python {platform.python_version()}"
    whole = f"{shlex.join(sys.argv)}\n{versions}, {platform.platform()}\n\n{text}"
    try:
        number, path = tempfile.mkstemp(prefix="dpbench-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(whole)
    except OSError:
        tell(whole)
        return "the traceback above"
    return path
