"""The base class of clips, and what they query or keep beside the sum."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from dpbench.step.clipping.problem import Part, Problem
from dpbench.step.gradients import Gradients, Layer
from dpbench.system.errors import UserError
from dpbench.system.validate import number, positive

Bound = float | Tensor

MIN_BOUND, MAX_BOUND = 1e-12, 1e12
"""The range of bounds: outside it float32 cannot represent squares of norms, and numbers that
underflow would no longer be negligible."""

MIN_FACTOR, MAX_FACTOR = 2.0**-100, 2.0**60
"""The range of factors, so that float32 can represent factors and scaled gradients. A gradient that
needs a larger factor to reach a bound of 1 has a norm below 1e-18, and is mostly rounding error."""


def check_bound(what: str, value: Bound) -> None:
    """UserError for a number that is no valid bound; a tensor is derived from one that is."""
    if not isinstance(value, Tensor):
        number(what, value, MIN_BOUND, MAX_BOUND)


def ratio(bound: Bound, norms: Tensor, most: float = MAX_FACTOR) -> Tensor:
    """bound/norm; at most `most`, 0 up to `MIN_FACTOR`, and NaN for NaN."""
    # The bits of the quotient, which torch takes twice as long to find for a number.
    quotients = bound / norms if isinstance(bound, Tensor) else norms.reciprocal().mul_(bound)
    return torch.threshold_(quotients.clamp_(max=most), MIN_FACTOR, 0.0)


class Sensitivity(NamedTuple):
    """How far one example can move a clip's sum.

    bound: the L2 distance that scales the noise; a scalar. caveat: one sentence on why it is no
    bound, although it scales the noise; None where it is. parts: of a gradient that are clipped
    separately; None if not yet known. composition: one sentence on how they compose to one
    sensitivity. noise_by_part: whether each part's noise is scaled by that part's bound alone.
    per_coordinate: whether one example moves each coordinate by at most bound/sqrt(D); coordinates
    is D then, once known. share: see `dpbench.privacy.ledger.GaussianMechanism`.
    """

    bound: Bound
    caveat: str | None = None
    parts: int | None = 1
    composition: str | None = None
    noise_by_part: bool = False
    per_coordinate: bool = False
    coordinates: int | None = None
    share: float = 1.0

    @property
    def known_parts(self) -> int:
        if self.parts is None:
            raise UserError("a layerwise clip needs the number of layers: call bind.")
        return self.parts

    @property
    def excess(self) -> float:
        """The true sensitivity over `bound`: in units of the noise one example then moves each part
        by 1."""
        return math.sqrt(self.known_parts) if self.noise_by_part else 1.0


@dataclass(frozen=True)
class CountQuery:
    """Noisy counts beside the gradient sum, with an L2 sensitivity of at most 1.

    noise_multiplier: standard deviation of the Gaussian noise, in examples; if `relative`, in
    multiples of the gradient's noise multiplier. before: whether the answer is needed before this
    batch is clipped (which costs a second pass if there are several physical batches). joint:
    whether an example's counts and its clipped gradient, in units of the sensitivity, have norm 1
    at most together: with equal noise, both are one release.
    """

    noise_multiplier: float
    before: bool
    relative: bool = False
    joint: bool = False

    def __post_init__(self) -> None:
        positive("the noise multiplier of the clip's counts", self.noise_multiplier)

    def multiplier(self, gradient_multiplier: float) -> float:
        """The absolute noise multiplier, given the gradient's."""
        return self.noise_multiplier * (gradient_multiplier if self.relative else 1)


@dataclass(frozen=True)
class Memory:
    """What a clip carries from step to step without releasing it.

    sensitivity: the L2 distance by which an example can move later sums through it, relative to the
    clip's own. share: the share of the noise's variance that the accounting reserves to hide it; 0
    where it leaves it out, and so proves nothing.
    """

    sensitivity: float
    share: float

    def multipliers(self, noise_multiplier: float) -> tuple[float, float]:
        """The noise multipliers of the batch's own sum, and of what is carried."""
        carried = noise_multiplier * self.share**0.5 / self.sensitivity
        return noise_multiplier * (1 - self.share) ** 0.5, carried


class Clip(Part, ABC):
    """Maps per-example gradients to a sum of bounded sensitivity.

    The defaults are those of a clip without counts and state whose sum is a weighted sum of
    gradients. In a dataclass they are also the defaults of fields of the same name, so a field
    without a default is declared with `field()`.
    """

    moved: ClassVar[Mapping[str, str]] = {
        **Part.moved,
        **dict.fromkeys(
            ("caveat", "composition", "excess", "parts", "per_coordinate", "coordinates"),
            "say it in the `Sensitivity` that `sensitivity` returns",
        ),
        **dict.fromkeys(("counts_by_norm", "exact_counts"), "call it `counts`"),
    }

    query: CountQuery | None = None
    """The count query of an adaptive clip."""

    memory: Memory | None = None
    """The private state carried from step to step; None for most clips."""

    by_group: bool = False
    """Whether the clip depends on the groups of examples, which users do not have."""

    group_shares: Tensor | None = None
    """By group [G], with which probability an example that is drawn is in the batch; None for 1."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How far one example can move the weighted sum."""

    @abstractmethod
    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        """Factors [B] or [B, L], shaped like the norms; group numbers [B]."""

    def norms(self, gradients: Gradients) -> Tensor:
        """The norms that `factors` depends on: [B], or [B, L] per layer."""
        return gradients.norms

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        """The weighted sum over a physical batch [D]; some clips add rows (see `finish`)."""
        return gradients.weighted_sum(factors)

    def finish(self, total: Tensor) -> Tensor:
        """The sum [D] that noise is added to, from the total over physical batches."""
        return total

    def carried(self, total: Tensor) -> Self:
        """The clip for the next step, given the total over physical batches; only with `memory`."""
        return self

    def widths(self, layers: Sequence[Layer], total: Tensor) -> Tensor | None:
        """Noise scale per coordinate [D], for papers whose noise is not isotropic; else None."""
        return None

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        """The exact answer [Q] to the query on a physical batch, before summation and noise."""
        return norms.new_zeros(0)

    def at_noise(self, noise_multiplier: float) -> Self:
        """The clip that knows the noise multiplier of this step's sum; called before `updated`."""
        return self

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        """The clip for the next step, given the noisy counts [Q]."""
        return self

    def scaled(self, by: float) -> Self:
        """The clip with its bounds, hence its sensitivity, multiplied by a factor."""
        raise UserError(f"{type(self).__name__} has no bound to schedule; leave schedule.bound 1.")


@dataclass(frozen=True)
class OneBound(Clip):
    """Base of clips with one bound R, which is the sensitivity."""

    bound: Bound

    def __post_init__(self) -> None:
        check_bound("the clipping bound (method.bound)", self.bound)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(self.bound)

    def scaled(self, by: float) -> Self:
        return replace(self, bound=self.bound * by)


@dataclass(frozen=True)
class DelegatingClip(Clip):
    """Delegates to `clip` what it does not override, except for query, memory and schedule, which
    are its own."""

    clip: Clip

    @property
    def sensitivity(self) -> Sensitivity:
        return self.clip.sensitivity

    @property
    def by_group(self) -> bool:  # type: ignore[override]
        return self.clip.by_group

    @property
    def group_shares(self) -> Tensor | None:  # type: ignore[override]
        return self.clip.group_shares

    def bind(self, problem: Problem) -> Self:
        return replace(self, clip=self.clip.bind(problem))

    def norms(self, gradients: Gradients) -> Tensor:
        return self.clip.norms(gradients)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return self.clip.factors(norms, groups)

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        return self.clip.reduce(gradients, factors)

    def finish(self, total: Tensor) -> Tensor:
        return self.clip.finish(total)

    def widths(self, layers: Sequence[Layer], total: Tensor) -> Tensor | None:
        return self.clip.widths(layers, total)
