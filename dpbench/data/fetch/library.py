"""Optional libraries, which only some data sets and models need."""

from importlib import import_module
from types import ModuleType

from dpbench.system.errors import UserError


def library(name: str, setting: str = "this", extra: str | None = None) -> ModuleType:
    """The module of that name, imported on demand as that takes seconds; UserError if missing.

    setting: what needs it, for the message. extra: the extra of dpbench-suite that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        source = f"'dpbench-suite[{extra}]'" if extra else package
        raise UserError(f"{setting} needs {package}: run `pip install {source}`.") from error
