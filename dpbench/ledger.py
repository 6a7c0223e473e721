"""The ledger: every access to private data, as frozen values that accountants can read.

A step draws a batch by some law and makes one or more releases *from that same batch*. That joint
release is what sampling amplifies, so a step is one sampled composition, not several.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from dpbench.validate import integer, positive


@dataclass(frozen=True)
class GaussianMechanism:
    """A query plus Gaussian noise of standard deviation multiplier * sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class Exact:
    """A query answered without noise: no epsilon is finite."""


CoordinateLaw = Literal["logistic", "laplace"]


@dataclass(frozen=True)
class CoordinateMechanism:
    """Independent noise of one scale on each of `dimension` coordinates of bounded sensitivity.

    One example moves every coordinate by at most G, all of them at once: by G sqrt(dimension) in
    L2, which is the sensitivity that the scale is noise_multiplier times. signed: only the signs
    are released.
    """

    noise: CoordinateLaw
    noise_multiplier: float
    dimension: int
    signed: bool = False

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        integer("the number of coordinates", self.dimension)

    @property
    def shift(self) -> float:
        """G over the scale: the pure epsilon of one coordinate."""
        return 1 / (self.noise_multiplier * math.sqrt(self.dimension))


Mechanism = GaussianMechanism | CoordinateMechanism | Exact


@dataclass(frozen=True)
class Release:
    """One answer about a batch: what was asked, and by which mechanism it was answered."""

    what: str
    mechanism: Mechanism


@dataclass(frozen=True)
class Poisson:
    """Each unit is in the batch with probability `rate`, independently of all others.

    unit: "example", or "user" with all of its examples.
    """

    rate: float
    unit: str = "example"


@dataclass(frozen=True)
class Shuffled:
    """Consecutive pieces of a permutation; no accountant here knows what it amplifies."""

    batch_size: int
    unit: str = "example"


Sampling = Poisson | Shuffled


@dataclass(frozen=True)
class Step:
    """One batch, and all that was released from it."""

    sampling: Sampling
    releases: tuple[Release, ...]


@dataclass(frozen=True)
class Ledger:
    """What happened, in order: steps and how often each was repeated.

    Adjacency is adding or removing one unit of the sampling, everywhere in the suite.
    """

    entries: tuple[tuple[Step, int], ...] = ()

    def after(self, step: Step, times: int = 1) -> "Ledger":
        """The ledger with `step` made `times` more times."""
        if self.entries and self.entries[-1][0] == step:
            *head, (_, count) = self.entries
            return replace(self, entries=(*head, (step, count + times)))
        return replace(self, entries=(*self.entries, (step, times)))

    def first(self, steps: int) -> "Ledger":
        """The ledger of the first so many steps."""
        part = Ledger()
        for step, times in self.entries:
            taken = min(times, steps - part.steps)
            if taken:
                part = part.after(step, taken)
        return part

    @property
    def steps(self) -> int:
        return sum(times for _, times in self.entries)
