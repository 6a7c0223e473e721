"""Schedules: settings that change during a run in a way that is fixed in advance.

A schedule maps progress, the completed fraction of the planned steps, in [0, 1], to a value. It
reads no data, so it costs no privacy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from dpbench.system.errors import UserError
from dpbench.system.validate import integer, is_number, quoted

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The same value throughout."""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value


@dataclass(frozen=True)
class Linear:
    """Linear interpolation from start to end."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


@dataclass(frozen=True)
class Cosine:
    """From start to end along half a cosine (Loshchilov and Hutter 2017)."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Pieces:
    """Piecewise constant: values[0] until progress reaches until[0], then values[1], and so on."""

    values: tuple[float, ...]
    until: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = list(self.until) == sorted(set(self.until))
        if len(self.values) != len(self.until) + 1 or not rising:
            raise UserError(
                f"a piecewise schedule needs increasing `until` and one more of `values`, got "
                f"values={quoted(list(self.values))} and until={quoted(list(self.until))}."
            )

    def __call__(self, progress: float) -> float:
        return self.values[sum(progress >= end for end in self.until)]


def schedule(what: str, value: float | Schedule) -> Schedule:
    """The schedule itself, or a number as a constant schedule; UserError for anything else."""
    if callable(value):
        return value
    if not is_number(value):
        raise UserError(f"{what} must be a number or a schedule, got {quoted(value)}.")
    return Constant(value)


@dataclass(frozen=True)
class Stairs:
    """A step function: `of`, sampled at the start of each of `number` equal parts of the run.

    Meant for noise, since accountants compose every distinct value separately.
    """

    of: Schedule
    number: int

    def __post_init__(self) -> None:
        integer("the number of stairs", self.number)

    def __call__(self, progress: float) -> float:
        stair = math.floor(progress * self.number + 1e-9)  # 0.29 * 100 is below 29
        return self.of(min(stair, self.number - 1) / self.number)


def constant(value: float | Schedule) -> float | None:
    """The value of a number or a constant schedule; None for any other schedule."""
    if isinstance(value, Constant):
        return value.value
    return None if callable(value) else value


def run_lengths(value: float | Schedule, steps: int) -> Iterator[tuple[float, int]]:
    """Run-length encoding of the values over `steps` steps: pairs (value, consecutive steps)."""
    fixed = constant(value)
    if fixed is not None:
        yield fixed, steps
    elif callable(value):
        for distinct, run in groupby(value(step / steps) for step in range(steps)):
            yield distinct, sum(1 for _ in run)


@dataclass(frozen=True)
class Schedules:
    """Factors that multiply a run's settings over time, each a number or a schedule.

    bound: multiplies the clip's bounds, hence sensitivity and noise alike, at no privacy cost. lr:
    multiplies the learning rate. noise: multiplies the noise multiplier that enters the ledger; a
    factor, so that noise can still be calibrated to a target epsilon.
    """

    bound: float | Schedule
    lr: float | Schedule
    noise: float | Schedule

    def __post_init__(self) -> None:
        for name, factor in vars(self).items():
            schedule(f"schedule.{name}", factor)

    def bound_at(self, progress: float) -> float:
        return _at(self.bound, progress)

    def lr_at(self, progress: float) -> float:
        return _at(self.lr, progress)

    def noise_at(self, progress: float) -> float:
        return _at(self.noise, progress)

    def check(self, steps: int) -> None:
        """UserError if a factor is no positive number at some step, but 0 for lr, or varies by
        itself: the ledger would have other noise than the steps."""
        for name, factor in vars(self).items():
            values = [*run_lengths(factor, steps)]
            for value, _ in values:
                if not is_number(value) or value < 0 or (value == 0 and name != "lr"):
                    raise UserError(
                        f"schedule.{name} must stay a positive number, and reaches {quoted(value)}."
                    )
            if values != [*run_lengths(factor, steps)]:
                raise UserError(
                    f"schedule.{name} gives other values when it is asked again: let it depend on "
                    "the progress alone."
                )


def _at(value: float | Schedule, progress: float) -> float:
    return value(progress) if callable(value) else value


UNCHANGED = Schedules(1.0, 1.0, 1.0)
