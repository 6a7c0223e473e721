"""Measurements for Table 1 and Theorem 3 of Bu et al. (calibration), on small networks."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from dpbench import seeds
from dpbench.clipping import Clip
from dpbench.data.dataset import Batch
from dpbench.errors import UserError
from dpbench.models.architecture import LOSSES
from dpbench.papers.calibration.dynamics import Descent, Dynamics
from dpbench.papers.calibration.flow import Flow, Steps, follow
from dpbench.papers.calibration.kernel import Network
from dpbench.papers.calibration.linear import Examples
from dpbench.training.plan import Run
from dpbench.validate import integer, positive

MAX_NUMBERS = 10**8
"""Entries of a Jacobian in float64: 0.8 GB."""

FINER = 16
"""The ratio of the two step sizes at which the effect of noise is measured."""


@dataclass(frozen=True)
class FlowSettings:
    """The settings of the measurements.

    examples: the number of training examples, all in every step. lr, steps, every and zero: see
    Steps. noise, noise_steps: standard deviation of the noise on the summed gradient, and the
    number of steps for which flows with and without it are compared, at lr and for the same time at
    a finer step. clips, optimizers: by label. by_hand: a
    linear regression whose flows are known, as an additional problem.
    """

    examples: int
    lr: float
    steps: int
    every: int
    zero: float
    noise: float
    noise_steps: int
    clips: dict[str, Clip]
    optimizers: dict[str, Dynamics] = field(default_factory=dict)
    by_hand: Examples | None = None

    def __post_init__(self) -> None:
        for name in ("examples", "steps", "every", "noise_steps"):
            integer(f"table.compute.{name}", getattr(self, name))
        for name in ("lr", "zero", "noise"):
            positive(f"table.compute.{name}", getattr(self, name))

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
class Finding:
    """Measurements along the flow of one clip and optimiser from one seed.

    seed: None for the regression of `by_hand`, which has a fixed initial network. noise: the
    largest |L with noise - L without| relative to the first loss, at lr and at the finer step.
    """

    label: str
    seed: int | None
    flow: Flow
    noise: tuple[float, float]


def examine(run: Run, setup: FlowSettings, label: str, folder: Path, seed: int | None) -> Finding:
    """Follow one flow, and a part of it with noise, each from the seed's initial weights.

    seed: None for the regression of `by_hand`. Raises UserError for a network or data that are too
    large or not differentiable.
    """
    dynamics, clip = setup.flows[label]
    network, batch = _problem(run, setup, folder, seed)

    def flow_of(steps: Steps) -> Flow:
        draw = seeds.generator(seed or 0, "noise", torch.device("cpu"))
        return follow(network(), batch, clip, steps, draw)

    flow = flow_of(Steps(setup.steps, setup.lr, 0.0, setup.every, setup.zero, dynamics))
    distances = []
    for finer in (1, FINER):
        count, lr = setup.noise_steps * finer, setup.lr / finer
        noisy, plain = (
            flow_of(Steps(count, lr, noise, None, 0.0, dynamics)) for noise in (setup.noise, 0.0)
        )
        distances.append(distance(noisy, plain))
    return Finding(label, seed, flow, (distances[0], distances[1]))


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


def in_float64(run: Run, folder: Path, seed: int, count: int) -> Batch:
    """The first `count` training examples; UserError for texts, or if there are fewer."""
    train = replace(run, seed=seed).load(folder).train
    if count > len(train):
        raise UserError(f"examples={count} is more than the {len(train)} training examples.")
    batch = train.at(torch.arange(count))
    if not batch.inputs.is_floating_point():
        raise UserError("the tangent kernel needs real-valued inputs, not texts.")
    return batch.each(lambda part: part.double() if part.is_floating_point() else part)


def initial_network(run: Run, seed: int, examples: int) -> Network:
    """The network with the seed's initial weights; UserError if its Jacobian would be too large."""
    with torch.random.fork_rng():
        torch.manual_seed(seeds.derived(seed, "initial weights"))
        model = run.model.build(run.dataset.shape, run.dataset.classes)
    size = examples * run.dataset.classes * sum(p.numel() for p in model.parameters())
    if size > MAX_NUMBERS:
        raise UserError(
            f"the Jacobian would have {size:.1g} numbers: choose a smaller model or fewer examples."
        )
    return Network(model, LOSSES[run.dataset.task])
