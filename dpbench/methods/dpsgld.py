"""DP-SGLD: Langevin dynamics, whose noise follows from the learning rate and provides privacy."""

from dataclasses import dataclass

import torch

from dpbench.clipping import Bounds
from dpbench.data.derive.users import Units
from dpbench.mechanism.langevin import PLAIN, NoiseFollowingRate, langevin
from dpbench.mechanism.method import Method
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

LAWS = ("lr", "posterior")


def dpsgld(
    bound: Bounds,
    prior_precision: float,
    law: str,
    clip: str = "abadi",
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
class Langevin(NoiseFollowingRate):
    """The noise rule by which the step's noise lr sigma R/B has the variance of `law`."""

    law: str
    method = "dpsgld"

    def rate_and_variance(
        self, optimizer: torch.optim.Optimizer, units: Units
    ) -> tuple[float, float]:
        """The variance divided by lr: 1 for Algorithm 3, and 2/n for the posterior."""
        return _plain_rate(optimizer), 1 if self.law == "lr" else 2 / units.number


def _plain_rate(optimizer: torch.optim.Optimizer) -> float:
    """The learning rate of plain SGD; UserError for any other optimiser."""
    group = optimizer.param_groups[0]
    is_plain = type(optimizer) is torch.optim.SGD and PLAIN.items() <= group.items()
    if not is_plain or not group["lr"] > 0:
        raise UserError(
            "dpsgld is a step of plain SGD: use optimizer=sgd with a positive lr and neither "
            "momentum nor weight decay (a prior is method.prior_precision)."
        )
    return float(group["lr"])
