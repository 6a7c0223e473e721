"""Reproduces the tables of papers on private SGD, and checks whether every epsilon holds.

From Python: `run` executes a run, `frame` returns records as a data frame, `reproduce` a paper's
table, `load_model` a trained model from its `model_file`, `save_adapter` writes its adapters for
the library peft, and `load_preparation` returns how rows of one's own table become its inputs;
`audit` audits private training code of one's own. They are imported on demand, so that importing
dpbench takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpbench import audit
from dpbench.comparison import reproduce
from dpbench.system import public_names
from dpbench.system.version import __version__ as __version__

if TYPE_CHECKING:
    from dpbench.learning.data.custom.preparation import load_preparation
    from dpbench.runs.execution.python_api import run
    from dpbench.runs.records.adapters import save_adapter
    from dpbench.runs.records.frames import frame
    from dpbench.runs.records.trained_model import load_model, model_file

public_names.install()

__all__ = [
    "audit",
    "frame",
    "load_model",
    "load_preparation",
    "model_file",
    "reproduce",
    "run",
    "save_adapter",
]


MODULES = {
    "frame": "dpbench.runs.records.frames",
    "load_model": "dpbench.runs.records.trained_model",
    "load_preparation": "dpbench.learning.data.custom.preparation",
    "model_file": "dpbench.runs.records.trained_model",
    "run": "dpbench.runs.execution.python_api",
    "save_adapter": "dpbench.runs.records.adapters",
}
"""Where the names are that are imported on demand."""


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)
