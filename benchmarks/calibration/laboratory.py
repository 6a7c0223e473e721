"""Measurements for Table 1 and Theorem 3 of Bu et al. (calibration), on small networks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dpbench.learning.data.examples import Batch
from dpbench.runs.training.float64 import Network, in_float64, initial_network
from dpbench.runs.training.run import Run
from dpbench.step.clipping import Clip
from dpbench.system import seeds
from dpbench.system.validate import Count, Positive

from .dynamics import Descent, Dynamics
from .flow import Discretisation, Flow, follow
from .linear import Examples

FINER = 16
"""The ratio between the two step sizes at which the effect of noise is measured."""


@dataclass(frozen=True)
class FlowSettings:
    """The settings of the measurements.

    examples: the number of training examples, all in every step. lr, steps, every and zero: see
    Discretisation. noise, noise_steps: standard deviation of the noise on the summed gradient, and
    the number of steps for which flows with and without it are compared, at lr and for the same
    time at a finer step. clips, optimizers: by label. by_hand: a linear regression whose flows are
    known, as an additional problem.
    """

    examples: Count
    lr: Positive
    steps: Count
    every: Count
    zero: Positive
    noise: Positive
    noise_steps: Count
    clips: dict[str, Clip]
    optimizers: dict[str, Dynamics] = field(default_factory=dict)
    by_hand: Examples | None = None

    @property
    def flows(self) -> dict[str, tuple[Dynamics, Clip]]:
        """By label: every optimiser under every clip."""
        if not self.optimizers:
            return {label: (Descent(), clip) for label, clip in self.clips.items()}
        return {
            f"{name}, {label}": (dynamics, clip)
            for name, dynamics in self.optimizers.items()
            for label, clip in self.clips.items()
        }


@dataclass(frozen=True)
class FlowRun:
    """Measurements along the flow of one clip and optimiser from one seed.

    seed: None for the regression of `by_hand`, which has a fixed initial network. noise: the
    largest |L with noise - L without| relative to the first loss, at lr and at the finer step.
    """

    label: str
    seed: int | None
    flow: Flow
    noise: tuple[float, float]


def examine(run: Run, setup: FlowSettings, label: str, folder: Path, seed: int | None) -> FlowRun:
    """Follow one flow, and a part of it with noise, each from the seed's initial weights.

    seed: None for the regression of `by_hand`. Raises UserError for a network or data that are too
    large or not differentiable.
    """
    dynamics, clip = setup.flows[label]
    network, batch = _problem(run, setup, folder, seed)

    def flow_of(steps: Discretisation) -> Flow:
        draw = seeds.generator(seed or 0, "noise", torch.device("cpu"))
        return follow(network(), batch, clip, steps, draw)

    flow = flow_of(Discretisation(setup.steps, setup.lr, 0.0, setup.every, setup.zero, dynamics))
    distances = []
    for finer in (1, FINER):
        count, lr = setup.noise_steps * finer, setup.lr / finer
        noisy, plain = (
            flow_of(Discretisation(count, lr, noise, None, 0.0, dynamics))
            for noise in (setup.noise, 0.0)
        )
        distances.append(distance(noisy, plain))
    return FlowRun(label, seed, flow, (distances[0], distances[1]))


def _problem(
    run: Run, setup: FlowSettings, folder: Path, seed: int | None
) -> tuple[Callable[[], Network], Batch]:
    """A function that builds the network with its initial weights, and the examples."""
    if seed is None:
        assert setup.by_hand
        return setup.by_hand.network, setup.by_hand.batch()
    batch = in_float64(run, folder, seed, setup.examples)
    return lambda: initial_network(run, seed, setup.examples), batch


def distance(one: Flow, other: Flow) -> float:
    """The largest difference of two loss curves with equal steps, relative to the first loss."""
    pairs = zip(one.losses, other.losses, strict=True)
    return max(abs(a - b) for a, b in pairs) / one.losses[0]
