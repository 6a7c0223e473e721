"""Full-batch training by small steps: the flows of Bu et al. (calibration).

Equations 4.1 and 4.2 for gradient descent, Appendices C.5 to C.7 for other optimisers.
"""

from dataclasses import dataclass, field

import torch

from dpbench.clipping import Clip
from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Stacked
from dpbench.papers.calibration.dynamics import Descent, Dynamics
from dpbench.papers.calibration.kernel import Clipped, Network, clipped
from dpbench.papers.calibration.properties import Properties, properties

DESCENT = Descent()


@dataclass(frozen=True)
class Steps:
    """How a flow is followed: at most `count` steps of size lr, each with its noise.

    noise: standard deviation of what is added to the sum of gradients, sigma R in Equation 4.1.
    every: steps from one look at the kernel to the next, the first step included; None never looks.
    zero: the share of the first loss at which the loss counts as zero, and the flow ends.
    dynamics: the optimiser that takes the steps.
    """

    count: int
    lr: float
    noise: float
    every: int | None
    zero: float
    dynamics: Dynamics = DESCENT


@dataclass(frozen=True)
class Flow:
    """What was seen along a flow: at every place, the first and the last included, or at some.

    losses: L. rates: dL/dt of gradient descent by Equation 4.3 or 4.4, without noise. cosines: of
    the gradient and its clipped form; where it is negative, descent raises the loss. clipped: the
    share of factors below 1.
    kernels: the properties of M; unclipped: those of H at the same places.
    """

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    kernels: list[Properties] = field(default_factory=list)
    unclipped: list[Properties] = field(default_factory=list)


def follow(network: Network, batch: Batch, clip: Clip, how: Steps, draw: torch.Generator) -> Flow:
    """Follow the flow of a clip from the network's parameters, which it moves."""
    seen, theta, n = Flow(), network.parameters.theta.data, len(batch)
    velocity = how.dynamics.start(how.lr)
    for step in range(how.count + 1):
        gradients = network.gradients(batch)
        made = clipped(clip, gradients, batch.groups)
        _note(seen, gradients, made)
        if how.every and step % how.every == 0:
            tangents = network.tangents(batch)
            seen.kernels.append(properties(tangents.kernel(made.factors)))
            seen.unclipped.append(properties(tangents.kernel()))
        if seen.losses[-1] <= how.zero * seen.losses[0] or step == how.count:
            break
        noise = torch.randn(theta.shape, dtype=theta.dtype, generator=draw)
        theta += how.lr * velocity((made.total + how.noise * noise) / n)
    return seen


def _note(seen: Flow, gradients: Stacked, made: Clipped) -> None:
    """The loss at one place, and where it is going."""
    gradient, n = gradients.stack().sum(0), len(gradients.losses)
    along = (gradient @ made.total).item()
    lengths = (gradient.norm() * made.total.norm()).item()
    seen.losses.append(gradients.losses.mean().item())
    seen.rates.append(-along / n**2)
    seen.cosines.append(along / lengths if lengths else 0.0)
    seen.clipped.append((made.factors < 1).double().mean().item())
