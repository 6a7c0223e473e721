"""Full-batch descent by small steps: the flow of Bu et al. (calibration), Equations 4.1 and 4.2."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.clipping import Clip
from dpbench.data.dataset import Batch
from dpbench.ntk.kernel import Clipped, Network, clipped
from dpbench.ntk.properties import Properties, properties


@dataclass(frozen=True)
class Steps:
    """How a flow is followed: at most `count` steps of size lr, with noise of multiplier sigma.

    every: steps from one look at the kernel to the next, the first step included. zero: the share
    of the first loss at which the loss counts as zero, and the flow ends.
    """

    count: int
    lr: float
    sigma: float
    every: int
    zero: float


@dataclass(frozen=True)
class Flow:
    """What was seen along a flow, one entry per step, and the kernels at some of the steps.

    losses: L. rates: dL/dt by Equation 4.3 or 4.4, without noise. cosines: of the gradient and its
    clipped form; where it is negative the loss rises. kernels: the properties of M; unclipped: those
    of H at the same steps.
    """

    losses: list[float]
    rates: list[float]
    cosines: list[float]
    kernels: list[Properties]
    unclipped: list[Properties]
    clipped_share: list[float]


def follow(network: Network, batch: Batch, clip: Clip, how: Steps, draw: torch.Generator) -> Flow:
    """Follow the flow of a clip from the network's parameters, which it moves."""
    seen = Flow([], [], [], [], [], [])
    theta, n = network.parameters.theta.data, len(batch)
    for step in range(how.count + 1):
        gradients = network.gradients(batch)
        private = clipped(clip, gradients, batch.groups)
        _note(seen, gradients.losses, gradients.stack().sum(0), private)
        if step % how.every == 0:
            tangents = network.tangents(batch)
            seen.kernels.append(properties(tangents.kernel(private.factors)))
            seen.unclipped.append(properties(tangents.kernel()))
        if seen.losses[-1] <= how.zero * seen.losses[0]:
            break
        noise = torch.randn(theta.shape, dtype=theta.dtype, generator=draw)
        scale = how.sigma * clip.sensitivity if how.sigma else 0.0
        theta -= how.lr / n * (private.total + scale * noise)
    return seen


def _note(seen: Flow, losses: Tensor, gradient: Tensor, private: Clipped) -> None:
    """One step's loss and where it is going: gradient [D] and its clipped form, both sums."""
    n = len(losses)
    along = gradient @ private.total
    lengths = gradient.norm() * private.total.norm()
    seen.losses.append(losses.mean().item())
    seen.rates.append(-along.item() / n**2)
    seen.cosines.append((along / lengths).item() if lengths else 0.0)
    seen.clipped_share.append((private.factors < 1).double().mean().item())
