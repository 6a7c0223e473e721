"""Errors that audited code raises, told to its owner."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpbench.system.errors import UserError

NOT_THEIRS = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), "<frozen")
"""How files begin that are no code of the owner's: those of dpbench and of Python itself."""


@contextmanager
def reporting_errors(name: str) -> Iterator[None]:
    """Within the context, errors of the owner's code are told, and so is a call of sys.exit, which
    would otherwise end the audit like one that refutes nothing."""
    try:
        yield
    except (UserError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise UserError(error_report(name, error)) from error


def error_report(name: str, error: BaseException) -> str:
    """An error of the audited code in one sentence, with its last line that is in no library."""
    passed = traceback.extract_tb(error.__traceback__)
    theirs = (f for f in passed if not f.filename.startswith(NOT_THEIRS))
    own = [f for f in theirs if "site-packages" not in f.filename]
    what = f"{type(error).__name__}: {error!s:.200}".removesuffix(": ")
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
    return f"{name} raised {what}{where}; correct it first."
