"""Langevin dynamics by SGD: the prior's gradient, and noise that follows from the learning rate."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from dpbench.clipping import Bounds, Clip, make_clip
from dpbench.data.derive.users import Units
from dpbench.mechanism.method import Method
from dpbench.mechanism.schedules import Schedules, constant, run_lengths
from dpbench.mechanism.update import Update
from dpbench.privacy.guarantee import PROVEN
from dpbench.system.errors import UserError
from dpbench.system.validate import number

PLAIN = {"momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False}
"""Settings of torch.optim.SGD for which its step is lr times the gradient."""


@dataclass(frozen=True)
class Prior(Update):
    """Adds the gradient of -log p(theta)/n, for p = N(0, I/precision) and n privacy units."""

    precision: float
    number: int = 1

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy.add_(theta, alpha=self.precision / self.number)

    def on(self, units: Units) -> Self:
        return replace(self, number=units.number)


class NoiseFollowingRate(ABC):
    """The noise rule by which the step's noise lr sigma R/B has a given variance per unit of lr.

    With a schedule, the noise follows each step's lr and R.
    """

    method: ClassVar[str]
    """The name of the method, for messages."""

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
        return expected_batch_size * math.sqrt(variance / lr) / float(clip.sensitivity)

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


def langevin(
    bound: Bounds, prior_precision: float, clip: str, style: str, noise_rule: NoiseFollowingRate
) -> Method:
    """A method that follows the gradient of a log posterior, with noise by a rule.

    Other arguments as for `dpbench.methods.dpsgld.dpsgld`.
    """
    number("method.prior_precision", prior_precision, least=0)
    clipping, update = make_clip(clip, style, bound), Prior(prior_precision)
    return Method(noise_rule.method, clipping, PROVEN, update=update, noise_rule=noise_rule)
