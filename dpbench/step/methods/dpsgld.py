"""DP-SGLD: Langevin dynamics, whose noise follows from the learning rate and provides privacy."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.learning.data.derive.users import Units
from dpbench.privacy.guarantee import PROVEN
from dpbench.step.clipping import Bounds, ClipName, Problem, make_clip
from dpbench.step.mechanism import Method, NoiseRule, Update, checked
from dpbench.system.errors import UserError
from dpbench.system.validate import NonNegative, one_of

LAWS = ("lr", "posterior")

PLAIN = {"momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False}
"""Settings of torch.optim.SGD for which its step is lr times the gradient."""


@checked
def dpsgld(
    bound: Bounds,
    prior_precision: NonNegative,
    law: str,
    clip: ClipName = "abadi",
    style: str = "flat",
) -> Method:
    """theta - lr (sum_i C_i g_i/B - grad log p(theta)/n) + noise (Bu et al. 2023, Algorithm 3).

    p is N(0, I/prior_precision); 0 for none. law: that of the noise, "lr" for N(0, lr I) as in
    Algorithm 3, "posterior" for N(0, 2 lr/n I), which is section 4.5 with lr = lr_SGLD n/2 and
    samples from the posterior if nothing is clipped. B is the expected batch size; lr that of the
    optimiser, which has to be plain SGD. bound, clip and style as for `dpsgd`; where nothing is
    clipped, R only enters the ledger as the sensitivity, and does not affect training.
    """
    one_of("method.law", law, LAWS)
    return langevin(bound, prior_precision, clip, style, Langevin(law))


@dataclass(frozen=True)
class Prior(Update):
    """Adds the gradient of -log p(theta)/n, for p = N(0, I/precision) and n privacy units."""

    precision: float
    number: int = 1

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy.add_(theta, alpha=self.precision / self.number)

    def bind(self, problem: Problem) -> Self:
        return replace(self, number=problem.units.number)


def langevin(
    bound: Bounds, prior_precision: float, clip: ClipName, style: str, noise_rule: NoiseRule
) -> Method:
    """A method that follows the gradient of a log posterior, with noise by a rule."""
    clipping, update = make_clip(clip, style, bound), Prior(prior_precision)
    return Method(noise_rule.method, clipping, PROVEN, update=update, noise_rule=noise_rule)


@dataclass(frozen=True)
class Langevin(NoiseRule):
    """The noise rule by which the step's noise lr sigma R/B has the variance of `law`."""

    law: str
    method = "dpsgld"

    def rate_and_variance(
        self, optimizer: torch.optim.Optimizer, units: Units
    ) -> tuple[float, float]:
        """The variance divided by lr: 1 for Algorithm 3, and 2/n for the posterior."""
        group = optimizer.param_groups[0]
        is_plain = type(optimizer) is torch.optim.SGD and PLAIN.items() <= group.items()
        if not is_plain or not group["lr"] > 0:
            raise UserError(
                "dpsgld is a step of plain SGD: use optimizer=sgd with a positive lr and neither "
                "momentum nor weight decay (a prior is method.prior_precision)."
            )
        return float(group["lr"]), 1 if self.law == "lr" else 2 / units.number
