"""Optional observation of a run: what a step does to each group. Reads private data freely."""

from typing import Protocol

from dpbench.data.dataset import Batch, Split
from dpbench.mechanism.step import PrivateStep


class Observer(Protocol):
    """Watches a run from outside: it moves no parameter, no state and no generator of the run."""

    def before(self, batch: Batch) -> None:
        """Called before each step, with the batch that the step will use."""
        ...

    def end_of_epoch(self) -> None: ...

    def series(self) -> dict[str, list]:
        """All that was measured, as columns."""
        ...

    def state_dict(self) -> dict:
        """All that was measured and counted so far, as lists of tensors and plain values."""
        ...

    def load_state_dict(self, state: dict) -> None:
        """Go on from there."""
        ...


class Diagnostics(Protocol):
    """What to observe; makes one observer per run."""

    def observer(self, step: PrivateStep, train: Split, test: Split) -> Observer:
        """Watches `step`; test is the split that the run will be tested on."""
        ...
