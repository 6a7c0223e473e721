"""SlaClip: DP-SGD with a bound that adapts to the slack of clipped gradients, at no cost."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Abadi, CountQuery
from dpbench.step.clipping.clip import check_bound
from dpbench.step.mechanism import Method
from dpbench.system.errors import UserError
from dpbench.system.validate import fraction, integer, positive

ONE_RELEASE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism: an example's clipped gradient and slack are one vector, "
    "whose norm is at most the bound.",
)


MAX_SLOTS = 4096

JOINT_QUERY = CountQuery(1.0, before=False, relative=True, joint=True)
"""The slots have the noise multiplier of the gradients: both are one release."""


def slaclip(
    bound: float, slots: int, clip_learning_rate: float, beta: float, least: float, most: float
) -> Method:
    """DP-SGD with the clip `Slack` (Zou et al. 2026, SlaClip).

    bound is the initial R, clip_learning_rate eta.
    """
    clip = Slack(bound, slots, clip_learning_rate, beta, least, most)
    return Method("slaclip", clip, ONE_RELEASE)


@dataclass(frozen=True)
class Slack(Abadi):
    """min(1, R/norm), with K slots that a gradient fills with its slack (Zou et al. 2026, SlaClip).

    Slot k of K holds f_k/sqrt(K), f_k = clamp(K s - k, 0, 1), for the slack s = max(1 - norm/R, 0).
    Slots and clipped gradient over R have norm at most 1 together, as sum_k f_k^2/K <= s and
    (norm/R)^2 + s <= 1: they are one Gaussian mechanism. With the noisy means f of the slots, gamma
    = clamp(1 - beta (1 - f_last/R), 0, 1) is the target of f_first, and R <- R exp(eta (gamma -
    f_first)).
    """

    slots: int
    learning_rate: float
    beta: float
    least: float
    most: float
    query: CountQuery = JOINT_QUERY

    def __post_init__(self) -> None:
        integer("method.slots", self.slots, most=MAX_SLOTS)
        positive("method.clip_learning_rate", self.learning_rate)
        fraction("method.beta", self.beta, zero=True, one=True)
        for name in ("least", "most"):
            check_bound(f"method.{name}", getattr(self, name))
        super().__post_init__()
        if not (isinstance(self.bound, Tensor) or self.least <= self.bound <= self.most):
            raise UserError("method.bound must lie between method.least and method.most.")

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        slack = (1 - norms.double() / self.bound).clamp(min=0).nan_to_num(0)
        first = torch.arange(self.slots, device=norms.device)
        filled = (self.slots * slack.unsqueeze(1) - first).clamp(0, 1)
        return filled.sum(0) / self.slots**0.5

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        filled = counts * self.slots**0.5 / expected_batch_size
        target = (1 - self.beta * (1 - filled[-1] / (self.bound + 1e-6))).clamp(0, 1)
        bound = self.bound * torch.exp(self.learning_rate * (target - filled[0]))
        # R is a released number, so clamping it is post-processing.
        return replace(self, bound=bound.clamp(self.least, self.most))

    def scaled(self, by: float) -> Self:
        raise UserError("a bound that adapts by slack has no schedule; leave schedule.bound 1.")
