"""Federated SGD: each user sends one gradient, clipped and weighed, and is protected as a whole."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.clipping import Clip, chosen
from dpbench.clipping.choice import Bounds
from dpbench.data.dataset import Batch
from dpbench.data.users import Units
from dpbench.gradients import Engine, Gradients
from dpbench.ledger import Mechanism
from dpbench.methods.method import Gradient, Guarantee, Method, Past, as_far_as, plain
from dpbench.noise import Gaussian
from dpbench.validate import positive

USERS = Guarantee(
    "proven",
    "Poisson-sampled users and a Gaussian mechanism with a stated sensitivity, as no weight is "
    "above 1; how many users there are and how many examples each has is taken as public.",
)


def dp_fedsgd(bound: Bounds, cap: float | None, clip: str = "abadi", style: str = "flat") -> Method:
    """The gradient of each user's mean loss (McMahan et al. 2018; Bu et al. 2023, Algorithm 4).

    cap: users count by min(examples/cap, 1); None for all alike. bound, clip and style as for
    `dpsgd`.
    """
    return of_users("dp_fedsgd", plain, cap, chosen(clip, style, bound))


def of_users(name: str, gradient: Gradient, cap: float | None, clip: Clip) -> Method:
    """A method about users: their clipped gradients add up by weights of at most 1.

    What the optimiser gets is sum_k w_k C_k g_k/(q W) with noise, W = sum_k w_k over all users.
    """
    if cap is not None:
        positive("method.cap", cap)
    return Method(
        name,
        "corrected",
        Weighing(gradient, cap),
        clip,
        Gaussian(),
        as_far_as(clip, USERS),
        update=PerWeight(cap),
        of_users=True,
    )


def weights(sizes: Tensor, cap: float | None) -> Tensor:
    """min(examples/cap, 1) for each user, or 1 (McMahan et al. 2018, Algorithm 1)."""
    return torch.ones_like(sizes) if cap is None else (sizes / cap).clamp(max=1)


@dataclass(frozen=True)
class Weighing:
    """A gradient seam whose gradients count by the weights of users once they are clipped."""

    gradient: Gradient
    cap: float | None

    def __call__(self, engine: Engine, batch: Batch, clip: Clip, past: Past) -> Gradients:
        gradients = self.gradient(engine, batch, clip, past)
        if self.cap is None:
            return gradients
        return Weighed(gradients, weights(batch.sizes.to(gradients.losses), self.cap))


class Weighed:
    """Gradients as they are, that count in sums by weights [B]."""

    def __init__(self, gradients: Gradients, weights: Tensor):
        self._gradients, self._weights = gradients, weights
        self.losses = gradients.losses

    @property
    def norms(self) -> Tensor:
        return self._gradients.norms

    @property
    def layer_norms(self) -> Tensor:
        return self._gradients.layer_norms

    def weighted_sum(self, factors: Tensor) -> Tensor:
        weights = self._weights if factors.dim() == 1 else self._weights.unsqueeze(1)
        return self._gradients.weighted_sum(factors * weights)

    def dot(self, vector: Tensor) -> Tensor:
        return self._gradients.dot(vector)

    def stack(self) -> Tensor:
        return self._gradients.stack()


@dataclass(frozen=True)
class PerWeight:
    """The sum over q W, from the one over the expected number of users; mean: W over all users."""

    cap: float | None
    mean: float = 1.0

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy.div_(self.mean)

    def on(self, units: Units) -> "PerWeight":
        sizes = torch.tensor(units.sizes, dtype=torch.float64)
        return PerWeight(self.cap, weights(sizes, self.cap).mean().item())

    def releases(self, mechanism: Mechanism) -> Mechanism:
        return mechanism
