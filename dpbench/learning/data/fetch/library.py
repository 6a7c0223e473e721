"""Optional libraries, which only some data sets, models and commands need."""

from importlib import import_module
from types import ModuleType

from dpbench.system.errors import UserError

EXTRAS = {
    "datasets": "hub",
    "kymatio": "features",
    "opacus": "peers",
    "plotly": "report",
    "timm": "models",
    "transformers": "models",
}
"""The extra of dpbench-suite that installs each."""


def library(name: str, setting: str = "this") -> ModuleType:
    """The module of that name, imported on demand as that takes seconds; UserError if missing.

    setting: what needs it, for the message.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        source = f"'dpbench-suite[{EXTRAS[package]}]'" if package in EXTRAS else package
        raise UserError(f"{setting} needs {package}: run `pip install {source}`.") from error
