"""Optional observation of a run: what a step does to each group. Reads private data freely."""

from typing import Protocol

from dpbench.data.dataset import Batch, Split
from dpbench.mechanism.step import PrivateStep


class Observer(Protocol):
    """Observes a run without changing its parameters, state or generators."""

    def before(self, batch: Batch) -> None:
        """Called before each step, with the batch that the step will use."""
        ...

    def end_of_epoch(self) -> None: ...

    def series(self) -> dict[str, list]:
        """All that was measured, as columns."""
        ...

    def state_dict(self) -> dict:
        """The measurements and counters so far, as tensors and plain values."""
        ...

    def load_state_dict(self, state: dict) -> None:
        """Restores `state_dict`."""
        ...


class Diagnostics(Protocol):
    """What to observe; makes one observer per run."""

    def observer(self, step: PrivateStep, train: Split, test: Split) -> Observer:
        """Watches `step`; test is the split that the run will be tested on."""
        ...
