"""Reproduces the tables of papers on private SGD, and checks whether every epsilon holds.

From Python: `run` executes a run, `frame` returns records as a data frame, and `reproduce` a
paper's table. They are imported on demand, so that importing dpbench takes no time.
"""

from typing import TYPE_CHECKING, Any

from dpbench import reproduce

if TYPE_CHECKING:
    from dpbench.execution.python_api import run
    from dpbench.records.frames import frame

__version__ = "0.1.0"

__all__ = ["frame", "reproduce", "run"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from dpbench.execution import python_api

        return python_api.run
    if name == "frame":
        from dpbench.records import frames

        return frames.frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
