"""Schedules: settings that change during a run, as fixed in advance.

A schedule maps progress, the fraction of planned steps that are done, in [0, 1], to a value. It
reads no data, so it costs no privacy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from dpbench.errors import UserError
from dpbench.validate import integer, is_number, quoted

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The same value throughout."""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value


@dataclass(frozen=True)
class Linear:
    """From start to end in a straight line."""

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
                f"a schedule in pieces needs rising `until` and one more of `values`, got "
                f"values={quoted(list(self.values))} and until={quoted(list(self.until))}."
            )

    def __call__(self, progress: float) -> float:
        return self.values[sum(progress >= end for end in self.until)]


def schedule(what: str, value: float | Schedule) -> Schedule:
    """A schedule as it is, a number as a constant schedule; UserError for anything else."""
    if callable(value):
        return value
    if not is_number(value):
        raise UserError(f"{what} must be a number or a schedule, got {quoted(value)}.")
    return Constant(value)


@dataclass(frozen=True)
class Stairs:
    """A step function: `of`, sampled at the start of each of `number` equal parts of the run.

    For noise, since an accountant composes every distinct value.
    """

    of: Schedule
    number: int

    def __post_init__(self) -> None:
        integer("the number of stairs", self.number)

    def __call__(self, progress: float) -> float:
        made = math.floor(progress * self.number + 1e-9)  # 0.29 * 100 is below 29
        return self.of(min(made, self.number - 1) / self.number)


def constant(value: float | Schedule) -> float | None:
    """The value of a number or a constant schedule; None for any other schedule."""
    if isinstance(value, Constant):
        return value.value
    return None if callable(value) else value


def stretches(value: float | Schedule, steps: int) -> Iterator[tuple[float, int]]:
    """Run-length encoding of the values over `steps` steps: (value, consecutive steps)."""
    throughout = constant(value)
    if throughout is not None:
        yield throughout, steps
    elif callable(value):
        for found, alike in groupby(value(made / steps) for made in range(steps)):
            yield found, sum(1 for _ in alike)


@dataclass(frozen=True)
class Schedules:
    """Factors of a run's settings over time, each a number or a schedule.

    bound: multiplies the clip's bounds, and thereby sensitivity and noise alike, which costs no
    privacy. lr: multiplies the learning rate. noise: multiplies the noise multiplier, which is
    entered in the ledger; relative, so that noise can be calibrated to a target epsilon.
    """

    bound: float | Schedule
    lr: float | Schedule
    noise: float | Schedule

    def __post_init__(self) -> None:
        for name in ("bound", "lr", "noise"):
            schedule(f"schedule.{name}", getattr(self, name))

    def bound_at(self, progress: float) -> float:
        return schedule("schedule.bound", self.bound)(progress)

    def lr_at(self, progress: float) -> float:
        return schedule("schedule.lr", self.lr)(progress)

    def noise_at(self, progress: float) -> float:
        return schedule("schedule.noise", self.noise)(progress)

    def check(self, steps: int) -> None:
        """UserError if a factor is not positive at one of `steps` steps; lr may reach 0."""
        for name in ("bound", "lr", "noise"):
            lowest = min(value for value, _ in stretches(getattr(self, name), steps))
            if not (lowest > 0 or (name == "lr" and lowest == 0)):
                raise UserError(f"schedule.{name} must stay positive, and gets to {lowest:g}.")


UNCHANGED = Schedules(1.0, 1.0, 1.0)
