"""Optional libraries, which only some data sets and models need."""

from importlib import import_module
from types import ModuleType

from dpbench.errors import UserError


def library(name: str) -> ModuleType:
    """The library of that name, imported on demand as that takes seconds; UserError if missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"this needs {name}: run `pip install {name}`.") from error
