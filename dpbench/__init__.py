"""Reproduces the tables of papers on private SGD, and checks whether every epsilon holds.

From Python: `run` executes a run, `frame` returns records as a data frame, `reproduce` a paper's
table, and `load_model` a trained model. They are imported on demand, so that importing dpbench
takes no time.
"""

from typing import TYPE_CHECKING, Any

from dpbench import reproduce

if TYPE_CHECKING:
    from dpbench.execution.python_api import run
    from dpbench.records.frames import frame
    from dpbench.records.trained_model import load_model

__version__ = "0.1.0"

__all__ = ["frame", "load_model", "reproduce", "run"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from dpbench.execution import python_api

        return python_api.run
    if name == "frame":
        from dpbench.records import frames

        return frames.frame
    if name == "load_model":
        from dpbench.records import trained_model

        return trained_model.load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
