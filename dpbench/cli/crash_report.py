"""How a command ends on an unexpected error: one sentence, and the traceback in a file."""

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import NoReturn, TextIO

from dpbench.system.errors import first_line, print_message, visible
from dpbench.system.version import __version__

FAILED = 1
"""Exit code of a command that failed at its work; a request refused beforehand exits with 2."""

BROKEN_PIPE = 141
"""Exit code if the reader of the output has gone, as shells report it for SIGPIPE."""


class OutputError(Exception):
    """The standard output could not be written."""


class Output:
    """A stream that raises OutputError, to tell its errors from those of a command's files. What
    controls a terminal is written as an escape, to a pipe too: `cat` shows it, or a log."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        # A character that the terminal cannot show must not lose the table around it.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        with _output_errors():
            return self._stream.write(visible(text))

    def write_styled(self, text: str) -> int:
        """Write text with codes of ours for the terminal."""
        with _output_errors():
            return self._stream.write(text)

    def flush(self) -> None:
        with _output_errors():
            self._stream.flush()

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError from error


@contextmanager
def checked_output() -> Iterator[None]:
    """Exit with a message and a code if the standard output cannot be written."""
    original = sys.stdout
    output = Output(original) if original else None
    sys.stdout = output  # type: ignore[assignment]
    try:
        try:
            yield
        finally:
            if output:
                output.flush()
    except OutputError as error:
        _exit_without_output(error.__cause__)
    finally:
        sys.stdout = original


def _exit_without_output(error: BaseException | None) -> NoReturn:
    with suppress(OSError):  # so that Python does not complain when it flushes the buffer at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(BROKEN_PIPE)
    assert isinstance(error, OSError)
    print_message(f"the output cannot be written ({error.strerror}).")
    sys.exit(FAILED)


def report(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None = None
) -> None:
    """The `sys.excepthook` of commands, after which Python exits with code 1."""
    from dpbench.system.memory import is_out_of_memory

    if isinstance(error, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    if is_out_of_memory(error):
        auto = "" if "physical_batch_size=auto" in sys.argv else " physical_batch_size=auto,"
        return print_message(f"memory ran out: use a smaller model,{auto} or fewer jobs.")
    first = " ".join(first_line(error).split())[:200]
    what, path = f"{kind.__name__}: {first}".removesuffix(": "), _save_report(error)
    if author := plugin_in(error):
        print_message(f"the plug-in {author} failed with {what}; the details are in {path}.")
    else:
        print_message(f"unexpected {what}; please report this dpbench bug and attach {path}.")


def plugin_in(error: BaseException) -> str:
    """The plug-in whose code an error came through, or ""."""
    from dpbench.runs.config.plugins import plugins

    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        files.append(error.filename or "")
    return next(
        (p.distribution for p in plugins() if any(Path(f).is_relative_to(p.folder) for f in files)),
        "",
    )


def _save_report(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    versions = f"dpbench {__version__}, Python {platform.python_version()}"
    report = f"{shlex.join(sys.argv)}\n{versions}, {platform.platform()}\n\n{text}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="dpbench-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
    except OSError:
        print_message(report)
        path = "the traceback above"
    return f"{path}, which may quote your data"
