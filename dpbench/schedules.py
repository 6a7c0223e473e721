"""Settings that change while a run goes on, by a plan that is fixed beforehand.

A schedule maps progress, the share of the planned steps that were made, in [0, 1], to a value. It
reads no data, so it costs no privacy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpbench.errors import UserError

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
                f"values={list(self.values)} and until={list(self.until)}."
            )

    def __call__(self, progress: float) -> float:
        return self.values[sum(progress >= end for end in self.until)]


def schedule(what: str, value: float | Schedule) -> Schedule:
    """The schedule itself, or a constant one of a number; UserError for anything else."""
    if callable(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{what} must be a number or a schedule, got {value!r}.")
    return Constant(value)
