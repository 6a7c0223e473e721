"""What a trial was, and which one is chosen."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpbench.errors import UserError
from dpbench.records.record import Record

ACCURACY, LOSS = "validation/accuracy", "validation/loss"


@dataclass(frozen=True)
class Trial:
    """One configuration and what became of its runs, one of each seed.

    number: from 1, in the order of the trials; overrides: what was drawn for it; outcomes: by seed,
    the run's record, or a sentence why there is none.
    """

    number: int
    overrides: tuple[str, ...]
    outcomes: dict[str, Record | str]

    @property
    def records(self) -> list[Record]:
        """Of the runs that came to their end, diverged ones among them."""
        return [one for one in self.outcomes.values() if isinstance(one, Record)]

    @property
    def failures(self) -> dict[str, str]:
        """Why a seed has no numbers."""
        return {seed: why for seed, one in self.outcomes.items() if (why := _failure(one))}

    def mean(self, metric: str) -> float:
        """Over all seeds; NaN where one failed, since a mean over the others would flatter."""
        return math.nan if self.failures else statistics.fmean(self._values(metric))

    def spread(self, metric: str) -> float:
        """Standard deviation over the seeds; NaN where one failed and where there is only one."""
        if self.failures or len(self.outcomes) == 1:
            return math.nan
        return statistics.stdev(self._values(metric))

    def _values(self, metric: str) -> list[float]:
        return [record.metrics.get(metric, math.nan) for record in self.records]

    @property
    def epsilon(self) -> float | None:
        """The RDP epsilon of one of its runs, or PLD's where RDP has none, the largest; None where
        none is proven."""
        spent = [_bound(record.privacy) for record in self.records]
        known = [one for one in spent if one is not None]
        return max(known) if known and len(known) == len(spent) else None


def _bound(privacy: dict) -> float | None:
    return privacy["rdp"] if privacy["rdp"] is not None else privacy.get("pld")


def _failure(outcome: Record | str) -> str | None:
    if isinstance(outcome, str):
        return outcome
    numbers = [outcome.metrics[name] for name in (ACCURACY, LOSS) if name in outcome.metrics]
    sound = outcome.status == "complete" and all(math.isfinite(number) for number in numbers)
    return None if sound else "diverged"


@dataclass(frozen=True)
class SelectionRule:
    """A rule of selection: the trial with the largest scores, compared one after the other."""

    says: str
    scores: Callable[[Trial], tuple[float, float]]


def _scores(trial: Trial) -> tuple[float, float]:
    """Mean accuracy, 0 where nothing is classified, and minus the mean loss."""
    accuracy = trial.mean(ACCURACY)
    return (0.0 if math.isnan(accuracy) else accuracy, -trial.mean(LOSS))


RULES = {
    "best_validation": SelectionRule(
        "highest mean validation accuracy over all seeds, then lowest mean validation loss, then "
        "the earliest trial",
        _scores,
    ),
    "lowest_validation_loss": SelectionRule(
        "lowest mean validation loss over all seeds, then highest mean validation accuracy, then "
        "the earliest trial",
        lambda trial: _scores(trial)[::-1],
    ),
}


def ranked(trials: Sequence[Trial], rule: SelectionRule) -> list[Trial]:
    """The trials that can be chosen, the best first; a tie keeps the order of the trials."""
    sound = [trial for trial in trials if not trial.failures]
    return sorted(sound, key=rule.scores, reverse=True)


def check_any(trials: Sequence[Trial]) -> None:
    """UserError where no run at all could be made: then the request is wrong, not its values."""
    if not any(trial.records for trial in trials):
        (why, *_) = trials[0].failures.values()
        raise UserError(f"none of the {len(trials)} trials could be run: {why}")
