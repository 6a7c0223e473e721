"""Methods: a gradient, a clip, a noise and an update, with the guarantee of their combination."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from numbers import Real
from typing import ClassVar, ParamSpec

import torch

from dpbench.learning.data.derive.users import Units
from dpbench.privacy.guarantee import CORRECTED, PRIVATE_DIVISOR, Guarantee
from dpbench.privacy.ledger import GaussianMechanism, Mechanism, Release
from dpbench.step.clipping import Clip, Problem, Sensitivity
from dpbench.step.mechanism.gradient import Gradient, PerExample
from dpbench.step.mechanism.noise import Gaussian, Noise
from dpbench.step.mechanism.schedules import Schedules, constant, run_lengths
from dpbench.step.mechanism.update import Plain, Update
from dpbench.system.errors import UserError
from dpbench.system.public_names import public_name
from dpbench.system.validate import check_annotated, one_of

P = ParamSpec("P")

GRADIENT_SUM, COUNTS = "gradient sum", "counts for the clip"
"""The first release of every training step and what may follow it, as ledgers name them."""


class NoiseRule(ABC):
    """Derives the noise multiplier: the noise lr sigma R/B of a step has a given variance per unit
    of lr. With a schedule, it follows each step's lr and R.

    method: the name of the method, for messages.
    """

    method: ClassVar[str]

    @abstractmethod
    def rate_and_variance(
        self, optimizer: torch.optim.Optimizer, units: Units
    ) -> tuple[float, float]:
        """lr, and the variance of the noise divided by it; UserError for other optimisers."""

    def multiplier(
        self, clip: Clip, optimizer: torch.optim.Optimizer, expected_batch_size: float, units: Units
    ) -> float:
        """sigma = B sqrt(v/lr)/R, for noise of variance lr v."""
        lr, variance = self.rate_and_variance(optimizer, units)
        return expected_batch_size * math.sqrt(variance / lr) / float(clip.sensitivity.bound)

    def schedule(self, schedule: Schedules, steps: int) -> Schedules:
        """The schedule with the noise factors 1/(sqrt(lr) R), from its factors of lr and R.

        Raises UserError if schedule.noise is set or lr reaches 0.
        """
        if schedule.noise != 1:
            raise UserError(
                f"the noise of {self.method} follows from lr and bound: set schedule.noise=1."
            )
        if min(value for value, _ in run_lengths(schedule.lr, steps)) <= 0:
            raise UserError(
                f"{self.method} adds no noise where lr is 0: let schedule.lr stay positive."
            )

        def noise(progress: float) -> float:
            return schedule.lr_at(progress) ** -0.5 / schedule.bound_at(progress)

        is_constant = None not in (constant(schedule.lr), constant(schedule.bound))
        return replace(schedule, noise=noise(0.0) if is_constant else noise)


class Inapplicable(UserError):
    """The method is not defined for the data set; the message says why."""

    def __init__(self, method: str, why: str):
        super().__init__(why)
        self.method = method


PER_EXAMPLE, GAUSSIAN, IDENTITY = PerExample(), Gaussian(), Plain()

PARTS = {"basis": Guarantee, "gradient": Gradient, "noise": Noise, "update": Update}


@dataclass(frozen=True)
class Method:
    """A training method: the clip of the private step, and what it changes of DP-SGD otherwise.

    basis: how far epsilon can be trusted if the clip's sensitivity is a bound. by_real_size:
    whether sums are divided by the batch's real size instead of the public expected one.
    whole_batches: whether the gradient seam needs the logical batch in one piece. groups: the
    number of groups the data must have; None for any. update: post-processing of the noisy mean.
    noise_rule: derives the noise multiplier from other settings; None where it is a setting itself.
    users_only: whether the method is defined only for user-level privacy; all others protect
    examples or users. failure: the probability, per clipped part and step, that an example's part
    exceeds its bound. own_accountant: the accountant of the method's paper, one of
    `dpbench.privacy.accountants.PAPER_ACCOUNTANTS`.
    """

    name: str
    clip: Clip
    basis: Guarantee
    gradient: Gradient = PER_EXAMPLE
    noise: Noise = GAUSSIAN
    update: Update = IDENTITY
    variant: str = CORRECTED
    by_real_size: bool = False
    whole_batches: bool = False
    groups: int | None = None
    noise_rule: NoiseRule | None = None
    users_only: bool = False
    failure: float = 0.0
    own_accountant: str | None = None

    def __post_init__(self) -> None:
        for part, kind in PARTS.items():
            if not isinstance(getattr(self, part), kind):
                name = public_name(f"{kind.__module__}.{kind.__name__}")
                raise UserError(
                    f"the {part} of {self.name} must be a {name}: make or derive one "
                    "(docs/add_a_method.md)."
                )
        sensitivity = getattr(self.clip, "sensitivity", None)
        if not isinstance(sensitivity, Sensitivity) or not _is_distance(sensitivity.bound):
            raise UserError(
                f"the sensitivity of {type(self.clip).__name__} must be a "
                "dpbench.clipping.Sensitivity of a positive number: return Sensitivity(number) "
                "(docs/add_a_method.md)."
            )

    @property
    def guarantee(self) -> Guarantee:
        """The basis, voided by a clip whose sensitivity is no bound, or completed by how its parts
        compose."""
        if self.basis.level == "none":
            return self.basis
        if self.by_real_size:
            return PRIVATE_DIVISOR
        sensitivity = self.clip.sensitivity
        if sensitivity.caveat:
            return Guarantee("none", sensitivity.caveat)
        reasons = filter(None, (self.basis.why, sensitivity.composition))
        return replace(self.basis, why=" ".join(reasons))

    @property
    def excess(self) -> float:
        """The true sensitivity over the one that scales the noise."""
        return self.clip.sensitivity.excess * self.update.excess

    @property
    def private(self) -> bool:
        return self.noise.private

    def bind(self, problem: Problem) -> "Method":
        """The method for a problem; Inapplicable if it is not defined for it, and UserError for
        parts that do not fit it, or each other."""
        self._check(problem)
        return replace(
            self,
            gradient=self.gradient.bind(problem),
            clip=self.clip.bind(problem),
            noise=self.noise.bind(problem),
            update=self.update.bind(problem),
        )

    def _check(self, problem: Problem) -> None:
        if problem.units.name == "user":
            if self.clip.by_group or self.groups is not None:
                raise Inapplicable(
                    self.name,
                    f"{self.name} depends on the groups of examples, and a user may have several: "
                    "use users=none or another method.",
                )
        elif self.users_only:
            raise Inapplicable(
                self.name,
                f"{self.name} protects users: choose users=iid, dirichlet, shards or column.",
            )
        groups = len(problem.dataset.groups)
        if self.groups not in (None, groups):
            raise Inapplicable(
                self.name,
                f"{self.name} is defined for exactly {self.groups} groups and "
                f"{problem.dataset.name} has {groups}; choose another method or data set.",
            )
        if self.noise.per_coordinate and not self.clip.sensitivity.per_coordinate:
            raise UserError(
                f"the noise of {self.name} needs a bound on each coordinate, and "
                f"{type(self.clip).__name__} has none: use dpbench.clipping.Coordinates."
            )

    def releases(self, noise_multiplier: float) -> tuple[Release, ...]:
        """Everything that one step releases from its batch, for the ledger."""
        if (memory := self.clip.memory) and memory.share:
            if self.failure or self.excess != 1 or self.clip.query:
                raise UserError(
                    f"{self.name} keeps an error from step to step, which is not accounted for "
                    "beside a count query, or a sensitivity that may be exceeded: use another clip."
                )
            own, carried = map(self._mechanism, memory.multipliers(noise_multiplier))
            error = Release("error of earlier steps", carried, unsampled=True)
            return (Release(GRADIENT_SUM, own), error)
        claimed = self._mechanism(noise_multiplier)
        mechanism = self._mechanism(noise_multiplier / self.excess)
        if self.failure and isinstance(mechanism, GaussianMechanism):
            mechanism = replace(mechanism, failure=self.failure * self.clip.sensitivity.known_parts)
        gradient = Release(GRADIENT_SUM, mechanism, None if mechanism == claimed else claimed)
        query = self.clip.query
        if query is None or query.joint:
            return (gradient,)
        share = self.clip.sensitivity.share
        counts = GaussianMechanism(query.multiplier(noise_multiplier), share=share)
        return (gradient, Release(COUNTS, counts))

    def _mechanism(self, noise_multiplier: float) -> Mechanism:
        sensitivity = self.clip.sensitivity
        mechanism = self.noise.mechanism(noise_multiplier)
        if sensitivity.share != 1 and isinstance(mechanism, GaussianMechanism):
            mechanism = replace(mechanism, share=sensitivity.share)
        return self.update.releases(mechanism, sensitivity.coordinates)


def _is_distance(bound: object) -> bool:
    """Whether a bound is positive; that of a tensor is not read, as a GPU would wait for it."""
    return isinstance(bound, torch.Tensor) or (isinstance(bound, Real) and float(bound) > 0)


def as_published(variant: str) -> bool:
    """Whether a variant is "paper" rather than "corrected"; UserError if it is neither."""
    return one_of("method.variant", variant, (CORRECTED, "paper")) == "paper"


def checked(method: Callable[P, Method]) -> Callable[P, Method]:
    """The function of a method, which refuses settings out of their annotated ranges in Python,
    too."""
    expected = signature(method, eval_str=True)

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Method:
        for name, value in expected.bind(*args, **kwargs).arguments.items():
            check_annotated(f"method.{name}", value, expected.parameters[name].annotation)
        return method(*args, **kwargs)

    return call
