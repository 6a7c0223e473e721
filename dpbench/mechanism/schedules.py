"""Settings that change while a run goes on, by a plan that is fixed beforehand.

A schedule maps progress, the share of the planned steps that were made, in [0, 1], to a value. It
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
    """values[0] until progress reaches until[0], then values[1], and so on: one value more."""

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
    """The schedule itself, or a constant one of a number; UserError for anything else."""
    if callable(value):
        return value
    if not is_number(value):
        raise UserError(f"{what} must be a number or a schedule, got {quoted(value)}.")
    return Constant(value)


@dataclass(frozen=True)
class Stairs:
    """A schedule held still over each of so many equal parts of the run, at where the part begins.

    For noise, of which an accountant composes every value.
    """

    of: Schedule
    number: int

    def __post_init__(self) -> None:
        integer("the number of stairs", self.number)

    def __call__(self, progress: float) -> float:
        made = math.floor(progress * self.number + 1e-9)  # 0.29 * 100 is below 29
        return self.of(min(made, self.number - 1) / self.number)


def constant(value: float | Schedule) -> float | None:
    """The one value that a number or a schedule has throughout; None where it has several."""
    if isinstance(value, Constant):
        return value.value
    return None if callable(value) else value


def stretches(value: float | Schedule, steps: int) -> Iterator[tuple[float, int]]:
    """The values of so many steps, each with the number of steps in a row that have it."""
    throughout = constant(value)
    if throughout is not None:
        yield throughout, steps
    elif callable(value):
        for found, alike in groupby(value(made / steps) for made in range(steps)):
            yield found, sum(1 for _ in alike)


@dataclass(frozen=True)
class Schedules:
    """By what the settings of a run are multiplied as it goes on: each a number or a schedule.

    bound: of the clip's bounds, and so of sensitivity and noise together, which costs nothing. lr:
    of the optimiser's learning rate. noise: of the noise multiplier, which the ledger hears; it is
    relative, so that an epsilon can be aimed at.
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
        """UserError if one of so many steps has a factor that is not positive."""
        for name in ("bound", "lr", "noise"):
            lowest = min(value for value, _ in stretches(getattr(self, name), steps))
            if not (lowest > 0 or (name == "lr" and lowest == 0)):
                raise UserError(f"schedule.{name} must stay positive, and gets to {lowest:g}.")


UNCHANGED = Schedules(1.0, 1.0, 1.0)
