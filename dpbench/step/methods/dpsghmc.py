"""DP-SGHMC: Langevin dynamics with momentum; the noise follows from learning rate and friction."""

from dataclasses import dataclass

import torch

from dpbench.learning.data.derive.users import Units
from dpbench.step.clipping import Bounds, ClipName
from dpbench.step.mechanism import Method, NoiseRule, checked
from dpbench.step.methods.dpsgld import PLAIN, langevin
from dpbench.system.errors import UserError
from dpbench.system.validate import NonNegative


@checked
def dpsghmc(
    bound: Bounds, prior_precision: NonNegative, clip: ClipName = "abadi", style: str = "flat"
) -> Method:
    """Stochastic gradient Hamiltonian Monte Carlo (Chen et al. 2014, Equation 15; Bu et al. 2023,
    section 4.5: DP heavy ball with a large R).

    v <- (1 - alpha) v - eta grad U + N(0, 2 alpha eta I), then theta <- theta + v, where grad U =
    n (sum_i C_i g_i/B - grad log p(theta)/n), eta = lr/n, and alpha = 1 - momentum of SGD with
    heavy ball. The estimate of the gradient noise (their beta) is 0, as it would be another
    release. For torch's buffer v = -lr u, so the noise has variance 2 alpha eta for sigma =
    B sqrt(2 alpha/(n lr))/R. prior_precision, bound, clip and style as for `dpsgld`.
    """
    return langevin(bound, prior_precision, clip, style, Hamiltonian())


@dataclass(frozen=True)
class Hamiltonian(NoiseRule):
    """The noise rule by which the step's noise lr sigma R/B matches the friction, for each step's
    lr, with which the velocity of torch's heavy ball scales."""

    method = "dpsghmc"

    def rate_and_variance(
        self, optimizer: torch.optim.Optimizer, units: Units
    ) -> tuple[float, float]:
        """The variance divided by lr: 2 alpha/n, for friction alpha = 1 - momentum."""
        group = optimizer.param_groups[0]
        rest = {name: value for name, value in PLAIN.items() if name != "momentum"}
        is_sgd = type(optimizer) is torch.optim.SGD and rest.items() <= group.items()
        if not (is_sgd and group["lr"] > 0 and 0 < group["momentum"] < 1):
            raise UserError(
                "dpsghmc is a step of SGD with heavy ball: use optimizer=momentum with a positive "
                "lr, a momentum below 1 and no weight decay (without momentum it is method=dpsgld "
                "method.law=posterior; a prior is method.prior_precision)."
            )
        return float(group["lr"]), 2 * (1 - float(group["momentum"])) / units.number
