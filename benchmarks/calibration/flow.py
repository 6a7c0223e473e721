"""Full-batch training in small steps: the gradient flows of Bu et al. (calibration).

Equations 4.1 and 4.2 for gradient descent, Appendices C.5 to C.7 for other optimisers.
"""

from dataclasses import dataclass, field

import torch

from dpbench.learning.data.examples import Batch
from dpbench.runs.training.float64 import Network
from dpbench.step.clipping import Clip
from dpbench.step.gradients.engine import MaterialisedGradients

from .dynamics import Descent, Dynamics
from .kernel import KernelClippedSum, clip_sum, tangents_of
from .properties import Properties, properties

DESCENT = Descent()


@dataclass(frozen=True)
class Discretisation:
    """The discretisation of a flow: at most `count` steps of size lr with noise.

    noise: standard deviation of the noise on the sum of gradients, sigma R in Equation 4.1. every:
    steps between measurements of the kernel, starting with the first; None for none. zero: the
    fraction of the first loss at which the loss counts as zero, and the flow ends. dynamics: the
    optimiser.
    """

    count: int
    lr: float
    noise: float
    every: int | None
    zero: float
    dynamics: Dynamics = DESCENT


@dataclass(frozen=True)
class Flow:
    """Measurements along a flow, at every step from the first to the last.

    losses: L. rates: dL/dt of gradient descent by Equation 4.3 or 4.4, without noise. cosines:
    between the gradient and the clipped gradient; if negative, descent increases the loss. clipped:
    the fraction of factors below 1. kernels: the properties of M, every few steps; unclipped: those
    of H at the same steps.
    """

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    kernels: list[Properties] = field(default_factory=list)
    unclipped: list[Properties] = field(default_factory=list)


def follow(
    network: Network, batch: Batch, clip: Clip, steps: Discretisation, draw: torch.Generator
) -> Flow:
    """Follow the flow of a clip from the network's parameters, which change."""
    flow, theta, n = Flow(), network.parameters.theta.data, len(batch)
    velocity = steps.dynamics.start(steps.lr)
    for step in range(steps.count + 1):
        gradients = network.gradients(batch)
        clipped = clip_sum(clip, gradients, batch.groups)
        _measure(flow, gradients, clipped)
        if steps.every and step % steps.every == 0:
            tangents = tangents_of(network, batch)
            flow.kernels.append(properties(tangents.kernel(clipped.factors)))
            flow.unclipped.append(properties(tangents.kernel()))
        if flow.losses[-1] <= steps.zero * flow.losses[0] or step == steps.count:
            break
        noise = torch.randn(theta.shape, dtype=theta.dtype, generator=draw)
        theta += steps.lr * velocity((clipped.total + steps.noise * noise) / n)
    return flow


def _measure(flow: Flow, gradients: MaterialisedGradients, clipped: KernelClippedSum) -> None:
    """Appends loss, rate, cosine and clipped fraction of the current parameters."""
    gradient, n = gradients.stack().sum(0), len(gradients.losses)
    product = (gradient @ clipped.total).item()
    norms = (gradient.norm() * clipped.total.norm()).item()
    flow.losses.append(gradients.losses.mean().item())
    flow.rates.append(-product / n**2)
    flow.cosines.append(product / norms if norms else 0.0)
    flow.clipped.append((clipped.factors < 1).double().mean().item())
