"""Trials, the rules that choose the best one, and what fewer trials would have found."""

import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dpbench.learning.metrics import derived
from dpbench.learning.metrics.students_t import standard_deviation
from dpbench.privacy.statement import AccountantName
from dpbench.runs.records.epsilon import Terms
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

ACCURACY, LOSS = "validation/accuracy", "validation/loss"
ECE = "validation/ece"
BALANCED = "validation/balanced_accuracy"
WORST_GROUP = derived.WORST_GROUP.replace("test/", "validation/")


@dataclass(frozen=True)
class Trial:
    """One configuration and the outcomes of its runs. number: from 1, in the order of the trials;
    values: of the ranges, by key; outcomes: by seed, the run's record, or why it failed."""

    number: int
    values: Mapping[str, str]
    outcomes: dict[str, Record | str]

    @property
    def records(self) -> list[Record]:
        """The records of finished runs, including diverged ones."""
        return [outcome for outcome in self.outcomes.values() if isinstance(outcome, Record)]

    @property
    def failures(self) -> dict[str, str]:
        """Why runs failed or diverged, by seed."""
        reasons = {seed: _failure(outcome) for seed, outcome in self.outcomes.items()}
        return {seed: reason for seed, reason in reasons.items() if reason}

    def mean(self, metric: str) -> float:
        """The mean over all seeds; NaN where one failed, as the others alone would be biased."""
        return math.nan if self.failures else statistics.fmean(self._values(metric))

    def spread(self, metric: str) -> float:
        """The standard deviation over the seeds; NaN where one failed or there is only one."""
        return math.nan if self.failures else standard_deviation(self._values(metric))

    def _values(self, metric: str) -> list[float]:
        return [derived.value_of(record.metrics, metric) for record in self.records]

    @property
    def terms(self) -> Terms | None:
        """What its epsilon is stated for; None without runs."""
        return Terms.of(self.records[0].statement) if self.records else None

    def epsilon(self, accountant: AccountantName) -> float | None:
        """The largest epsilon of its runs by `rdp` or `pld`; None if one has none by it."""
        bounds = [record.privacy[accountant] for record in self.records]
        computed = [bound for bound in bounds if bound is not None]
        return max(computed) if computed and len(computed) == len(bounds) else None


def _failure(outcome: Record | str) -> str | None:
    if isinstance(outcome, str):
        return outcome
    metrics = [outcome.metrics[name] for name in (ACCURACY, LOSS) if name in outcome.metrics]
    valid = outcome.status == "complete" and all(map(math.isfinite, metrics))
    return None if valid else "diverged"


@dataclass(frozen=True)
class SelectionRule:
    """Chooses the trial with the largest scores, compared in lexicographic order.

    metric: what it compares first.
    """

    metric: str
    description: str
    scores: Callable[[Trial], tuple[float, float]]


def _or_zero(value: float) -> float:
    """Of a regression, which has no accuracy."""
    return 0.0 if math.isnan(value) else value


def _highest(metric: str, name: str) -> SelectionRule:
    return SelectionRule(
        metric,
        f"highest mean {name} over all seeds, then lowest mean validation loss, then the earliest "
        "trial",
        lambda trial: (_or_zero(trial.mean(metric)), -trial.mean(LOSS)),
    )


RULES = {
    "best_validation": _highest(ACCURACY, "validation accuracy"),
    "best_worst_group": _highest(WORST_GROUP, "validation accuracy of the worst group"),
    "best_balanced_accuracy": _highest(BALANCED, "balanced validation accuracy"),
    "lowest_validation_loss": SelectionRule(
        LOSS,
        "lowest mean validation loss over all seeds, then highest mean validation accuracy, then "
        "the earliest trial",
        lambda trial: (-trial.mean(LOSS), _or_zero(trial.mean(ACCURACY))),
    ),
}


BY_LOSS = (
    "lowest mean validation loss over all seeds, since a regression has no accuracy, then the "
    "earliest trial"
)
"""What each rule comes to for a regression."""


def is_regression(trials: Sequence[Trial]) -> bool:
    """Whether the trials measured a loss alone."""
    measured = {name for trial in trials for record in trial.records for name in record.metrics}
    return LOSS in measured and ACCURACY not in measured


def ranked(trials: Sequence[Trial], rule: SelectionRule) -> list[Trial]:
    """The trials without failures, the best first; ties keep the order of the trials."""
    valid = [trial for trial in trials if not trial.failures]
    return sorted(valid, key=rule.scores, reverse=True)


def check_any(trials: Sequence[Trial]) -> None:
    """UserError where all runs failed: then the request is wrong, and not only some values."""
    if not any(trial.records for trial in trials):
        (reason, *_) = trials[0].failures.values()
        raise UserError(f"none of the {len(trials)} trials could be run: {reason}")


def failures_of(trials: Sequence[Trial]) -> str:
    """How many runs have no record, as a sentence; "" if all have one, if only as diverged."""
    runs = sum(len(trial.outcomes) for trial in trials)
    failed = runs - sum(len(trial.records) for trial in trials)
    return f"{failed} of {runs} runs failed, for the reasons in the table." if failed else ""


def expected_best(
    values: Sequence[float], count: int, scores: Sequence[float] | None = None
) -> float:
    """The expected value of the best of `count` trials drawn without replacement from n: of the one
    with the largest of scores [n], or without scores the largest of values [n].

    Unbiased (Dodge et al. 2019, in the form of Tang et al. 2020). ValueError for more than n.
    """
    ranked = [value for _, value in sorted(zip(scores or values, values, strict=True))]
    return math.fsum(map(operator.mul, shares(len(values), count), ranked))


def shares(number: int, count: int) -> list[float]:
    """The share of the draws of `count` of so many values whose largest is the smallest value, the
    second smallest, and so on; ValueError as for `expected_best`."""
    if not 1 <= count <= number:
        raise ValueError(f"{count} of {number} values cannot be drawn.")
    ways = math.comb(number, count)
    # The i-th smallest is the largest of those whose others are below it.
    return [math.comb(below, count - 1) / ways for below in range(number)]


def budgets(trials: int) -> list[int]:
    """1, 2, 4, ... up to the number of trials."""
    return [2**k for k in range(trials.bit_length())]
