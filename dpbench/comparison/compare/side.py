"""A side of a comparison: the runs of one method in one setting, and how the setting was chosen."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpbench.learning.metrics.derived import value_of
from dpbench.learning.metrics.registry import metric_of
from dpbench.privacy.statement import Statement
from dpbench.runs.config.settings import NAMED_GROUPS, OFF_VALUES, leaves
from dpbench.runs.records.divergence import DIVERGED
from dpbench.runs.records.epsilon import NOT_PRIVATE, Terms, largest_epsilon
from dpbench.runs.records.record import Record
from dpbench.system.grouping import grouped

BySeed = Mapping[Any, float]
"""Values by seed."""

CHOSEN = ("method", "optimizer", "schedule")
"""The groups whose settings are chosen for each method."""

AT_EDGE = "was tuned at the edge of its range"
ELSEWHERE = "was tuned under another condition"


@dataclass(frozen=True)
class Tuning:
    """How a setting was chosen.

    trials: of its search, 0 for none, None where a file gives the setting. flaw: why another may be
    better; "" if nothing says so. unsearched: the special case of the method that the search did
    not try, such as `dpsgd`. equals: the one that the setting amounts to.
    """

    trials: int | None = None
    flaw: str = ""
    unsearched: str = ""
    equals: str = ""


GIVEN = Tuning()


@dataclass(frozen=True)
class Budget:
    """An epsilon, or why there is none, and the terms that it is stated for."""

    epsilon: float | str
    terms: tuple[object, ...] = ()

    @classmethod
    def of(cls, statements: list[Statement]) -> "Budget":
        """The budget of runs of one setting, by PLD."""
        epsilon = largest_epsilon(statements, "pld")
        is_bound = not isinstance(epsilon, str)
        return cls(epsilon, Terms.of(statements[0]).comparable if is_bound else ())

    @property
    def is_private(self) -> bool:
        return self.epsilon != NOT_PRIVATE


@dataclass(frozen=True)
class Side:
    """The runs of one method in one setting under one condition.

    values: the metric by seed in its unit, NaN for a run that diverged; budgets: one for each task,
    none where they differ by design; settings: what the other side must share, unless both are of
    one design, such as the rows of a table, whose file says what they differ in.
    """

    name: str
    values: BySeed
    budgets: tuple[Budget, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    tuning: Tuning = GIVEN
    design: str = ""

    @property
    def is_private(self) -> bool:
        """Whether its runs have a budget, or one that is not known; False without privacy."""
        return not self.budgets or any(budget.is_private for budget in self.budgets)

    @classmethod
    def of(
        cls,
        name: str,
        records: Sequence[Record],
        metric: str,
        tuning: Tuning = GIVEN,
        unit: Callable[[Any], Any] = lambda seed: seed,
    ) -> "Side":
        """The side of runs that differ by their seeds alone, compared by a metric, without those
        that did not diverge and have no such number; unit: what is random in them, by seed. Shared
        are all settings but those chosen for each method, and the budget, in place of which
        epsilons are compared."""
        values = {
            record.seed: value
            for record in records
            if not math.isnan(value := value_in(record, metric)) or record.status == DIVERGED
        }
        budgets = (Budget.of([record.statement for record in records]),)
        shared = shared_settings(records[0].config)
        return cls(name, mean_by(unit, values), budgets, shared, tuning)


TaskKey = tuple[str, str, str]
"""A method, a data set and a model."""


def mean_by(unit: Callable[[Any], Any], values: BySeed) -> dict[Any, float]:
    """The mean over the seeds of each unit, which comparisons take as random."""
    by_unit = grouped((unit(seed), value) for seed, value in values.items())
    return {key: statistics.fmean(of_unit) for key, of_unit in by_unit.items()}


def task_of(record: Record) -> TaskKey:
    """The method of a run, its data set and its model."""
    choices = record.config["choices"]
    return choices["method"], choices["dataset"], choices["model"]


def value_in(record: Record, metric: str) -> float:
    """A metric in its unit; NaN where the run diverged or has no such metric."""
    if record.status == DIVERGED:
        return math.nan
    return metric_of(metric).factor * value_of(record.measured, metric)


def shared_settings(config: Mapping[str, Any]) -> dict[str, object]:
    """What runs must share to be compared, by name: an option by its group; settings that are off
    are none."""
    options = {group: config["choices"][group] for group in NAMED_GROUPS}
    of_groups = (*CHOSEN, "choices", "diagnostics", "privacy", "seed")
    settings = {
        k: v for k, v in leaves(config) if v not in OFF_VALUES and not k.endswith("_target_")
    }
    return {
        key: value
        for key, value in {**settings, **options}.items()
        if key.partition(".")[0] not in of_groups
    }
