"""What Table 1 and Theorem 3 of Bu et al. (calibration) say of clippings, on small networks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dpbench import seeds
from dpbench.clipping import Clip, Global, Layerwise, make_clip
from dpbench.config.buildable import check_settings
from dpbench.data.dataset import Batch
from dpbench.errors import UserError
from dpbench.models.architecture import LOSSES
from dpbench.papers.calibration.dynamics import Descent, Dynamics, dynamics_of
from dpbench.papers.calibration.flow import Flow, Steps, follow
from dpbench.papers.calibration.kernel import Network
from dpbench.papers.calibration.linear import Examples
from dpbench.training.plan import Run
from dpbench.validate import integer, positive, typed

MOST_NUMBERS = 10**8
"""Of a Jacobian in float64: 0.8 GB."""

FINER = 16
"""How many times smaller the second step is at which noise is looked at."""


@dataclass(frozen=True)
class Setup:
    """What is measured, and how closely.

    examples: the first so many of the training split, all in every step. lr, steps, every and zero:
    see Steps. noise, noise_steps: standard deviation of the noise on the summed gradient, and the
    number of steps for which flows with and without it are compared, at lr and at a finer step for
    as long. clips: by label, what each is: `clip`, `style` and `bound` as of a method.
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


def setup_of(plain: Mapping[str, Any]) -> Setup:
    """The set-up that a mapping from YAML describes; UserError for keys missing or unknown."""
    clips = _each("clips", plain.get("clips"), _clip)
    made: dict[str, Any] = {**plain, "clips": clips}
    if "optimizers" in plain:
        made["optimizers"] = _each("optimizers", plain["optimizers"], dynamics_of)
    if "by_hand" in plain:
        typed("table.compute.by_hand", plain["by_hand"], dict[str, Any])
        check_settings(Examples, plain["by_hand"], "table.compute.by_hand.")
        made["by_hand"] = Examples(**plain["by_hand"])
    check_settings(Setup, made, "table.compute.")
    return Setup(**made)


def _each(name: str, plain: Any, make: Callable[[str, dict], Any]) -> dict[str, Any]:
    """What a mapping of mappings describes, by label."""
    typed(f"table.compute.{name}", plain, dict[str, dict[str, Any]])
    return {label: make(f"table.compute.{name}.{label}", one) for label, one in plain.items()}


def _clip(where: str, plain: dict[str, Any]) -> Clip:
    """A clip as of a method, and a global one with a Z of its own: R/Z or 0 for each layer too."""
    as_of_method = {key: value for key, value in plain.items() if key != "strict_bound"}
    check_settings(make_clip, as_of_method, f"{where}.")
    clip = make_clip(**as_of_method)
    if "strict_bound" not in plain:
        return clip
    inner = clip.clip if isinstance(clip, Layerwise) else clip
    if not isinstance(inner, Global):
        raise UserError(f"{where}.strict_bound is for clip=global.")
    strict = replace(inner, strict_bound=positive(f"{where}.strict_bound", plain["strict_bound"]))
    return replace(clip, clip=strict) if isinstance(clip, Layerwise) else strict


@dataclass(frozen=True)
class Finding:
    """What was seen along the flows of one clip, or of an optimiser with it, from one seed.

    seed: None on the examples by hand, which have one initial network. noise: the largest
    |L with noise - L without| in units of the first loss, at lr and at the finer step.
    """

    label: str
    seed: int | None
    flow: Flow
    noise: tuple[float, float]


def examine(run: Run, setup: Setup, label: str, folder: Path, seed: int | None) -> Finding:
    """Follow one flow, and a part of it with noise, each from the seed's initial weights.

    seed: None for the examples by hand. Raises UserError for a network or data that are too large
    or have no derivatives.
    """
    dynamics, clip = setup.flows[label]
    network, batch = _problem(run, setup, folder, seed)

    def along(how: Steps) -> Flow:
        draw = seeds.generator(seed or 0, "noise", torch.device("cpu"))
        return follow(network(), batch, clip, how, draw)

    flow = along(Steps(setup.steps, setup.lr, 0.0, setup.every, setup.zero, dynamics))
    apart = []
    for finer in (1, FINER):
        count, lr = setup.noise_steps * finer, setup.lr / finer
        noisy, plain = (
            along(Steps(count, lr, noise, None, 0.0, dynamics)) for noise in (setup.noise, 0.0)
        )
        apart.append(distance(noisy, plain))
    return Finding(label, seed, flow, (apart[0], apart[1]))


def _problem(
    run: Run, setup: Setup, folder: Path, seed: int | None
) -> tuple[Callable[[], Network], Batch]:
    """What gives the network at its initial weights, and the examples."""
    if seed is None:
        assert setup.by_hand
        return setup.by_hand.network, setup.by_hand.batch()
    batch = in_float64(run, folder, seed, setup.examples)
    return lambda: initial_network(run, seed, setup.examples), batch


def distance(one: Flow, other: Flow) -> float:
    """The largest difference of two loss curves of equal steps, in units of the first loss."""
    pairs = zip(one.losses, other.losses, strict=True)
    return max(abs(a - b) for a, b in pairs) / one.losses[0]


def in_float64(run: Run, folder: Path, seed: int, count: int) -> Batch:
    """The first so many training examples; UserError for texts, and where there are fewer."""
    train = replace(run, seed=seed).load(folder).train
    if count > len(train):
        raise UserError(f"examples={count} is more than the {len(train)} training examples.")
    batch = train.at(torch.arange(count))
    if not batch.inputs.is_floating_point():
        raise UserError("the tangent kernel needs numbers to compute with: choose no texts.")
    return batch.each(lambda part: part.double() if part.is_floating_point() else part)


def initial_network(run: Run, seed: int, examples: int) -> Network:
    """At the seed's initial weights; UserError for one too large to have so many tangents of."""
    with torch.random.fork_rng():
        torch.manual_seed(seeds.derived(seed, "initial weights"))
        model = run.model.build(run.dataset.shape, run.dataset.classes)
    size = examples * run.dataset.classes * sum(p.numel() for p in model.parameters())
    if size > MOST_NUMBERS:
        raise UserError(
            f"the Jacobian would have {size:.1g} numbers: choose a smaller model or fewer examples."
        )
    return Network(model, LOSSES[run.dataset.task])
