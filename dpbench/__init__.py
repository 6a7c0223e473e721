"""Reproduces the tables of papers on private SGD, and checks whether every epsilon holds.

From Python: `run` executes a run, `frame` returns records as a data frame, `reproduce` a paper's
table, `load_model` a trained model from its `model_file`, `save_adapter` writes its adapters for
the library peft, and `load_preparation` returns how rows of one's own table become its inputs;
`audit` audits private training code of one's own. They are imported on demand, so that importing
dpbench takes no time.
"""

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


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from dpbench.runs.execution import python_api

        return python_api.run
    if name == "frame":
        from dpbench.runs.records import frames

        return frames.frame
    if name in ("load_model", "model_file"):
        from dpbench.runs.records import trained_model

        return getattr(trained_model, name)
    if name == "save_adapter":
        from dpbench.runs.records import adapters

        return adapters.save_adapter
    if name == "load_preparation":
        from dpbench.learning.data.custom import preparation

        return preparation.load_preparation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
