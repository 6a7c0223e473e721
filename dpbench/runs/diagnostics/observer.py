"""Diagnostics, and the base of their observers, which fill columns during a run."""

from collections import defaultdict
from typing import Protocol

from dpbench.learning.data.examples import Batch, Split
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.errors import UserError
from dpbench.system.validate import is_integer, quoted


class Observer:
    """Observes a run without changing its parameters, state or generators; a subclass measures in
    `before` or `end_of_epoch`. columns: those of equal prefix (`step/`) have one entry each."""

    def __init__(self, step: PrivateStep):
        self._step = step
        self.columns: dict[str, list] = defaultdict(list)

    @property
    def _steps_done(self) -> int:
        return self._step.released.steps_done

    def before(self, batch: Batch) -> None:
        """Called before each step with the step's batch."""

    def end_of_epoch(self) -> None:
        """Called after each epoch."""

    def series(self) -> dict[str, list]:
        """All measurements of the run as columns, with those at its end."""
        return dict(self.columns)

    def state_dict(self) -> dict:
        """Measurements so far, as tensors and plain values."""
        return {"columns": dict(self.columns)}

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned."""
        self.columns = defaultdict(list, state["columns"])


class Diagnostics(Protocol):
    """The settings of diagnostics, from which each run gets an observer.

    An attribute `of_gradients` that is true says that they compare what a method clips to gradients
    of the parameters, and one called `groups` has the numbers of those that are measured.
    """

    def observer(self, step: PrivateStep, train: Split, test: Split) -> Observer:
        """An observer of `step`; test: the split that the run is evaluated on."""


def chosen_groups(groups: list[int] | None, train: Split) -> list[int]:
    """The groups to measure: for None, those up to the last that has training examples."""
    return [*range(int(train.groups.max()) + 1)] if groups is None else groups


def check_groups(groups: list[int], count: int) -> None:
    """UserError for a number outside 0 to count - 1, and for one that is there twice."""
    if not all(is_integer(k) and 0 <= k < count for k in groups):
        raise UserError(
            f"diagnostics.groups={quoted(groups)}: the groups here are 0 to {count - 1}."
        )
    if len({*groups}) < len(groups):
        raise UserError(f"diagnostics.groups={quoted(groups)} has a group twice: name each once.")
