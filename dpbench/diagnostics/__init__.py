"""Optional diagnostics of a run, which read private data outside of any accounting."""

from typing import Protocol

from dpbench.data.dataset import Split
from dpbench.diagnostics.observer import Observer
from dpbench.mechanism.step import PrivateStep

__all__ = ["Diagnostics", "Observer"]


class Diagnostics(Protocol):
    """The settings of diagnostics, from which each run gets an observer."""

    def observer(self, step: PrivateStep, train: Split, test: Split) -> Observer:
        """An observer of `step`; test: the split that the run is evaluated on."""
        ...
