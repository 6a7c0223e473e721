"""What Table 1 of Bu et al. (calibration) says of six clippings, measured on a small network."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dpbench import seeds
from dpbench.buildable import check_settings
from dpbench.clipping import Clip, chosen
from dpbench.data.dataset import Batch, Split
from dpbench.errors import UserError
from dpbench.models.architecture import LOSSES
from dpbench.ntk.flow import Flow, Steps, follow
from dpbench.ntk.kernel import Network
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

    def __post_init__(self) -> None:
        for name in ("examples", "steps", "every", "noise_steps"):
            integer(f"table.ntk.{name}", getattr(self, name))
        for name in ("lr", "zero", "noise"):
            positive(f"table.ntk.{name}", getattr(self, name))


def setup_of(plain: Mapping[str, Any]) -> Setup:
    """The set-up that a mapping from YAML describes; UserError for keys missing or unknown."""
    named = plain.get("clips")
    typed("table.ntk.clips", named, dict[str, dict[str, Any]])
    assert isinstance(named, dict)
    for label, one in named.items():
        check_settings(chosen, one, f"table.ntk.clips.{label}.")
    made = {**plain, "clips": {label: chosen(**one) for label, one in named.items()}}
    check_settings(Setup, made, "table.ntk.")
    return Setup(**made)


@dataclass(frozen=True)
class Finding:
    """What was seen along the flows of one clip from one seed.

    noise: the largest |L with noise - L without| in units of the first loss, at lr and at the finer
    step.
    """

    label: str
    seed: int
    flow: Flow
    noise: tuple[float, float]


def examine(run: Run, setup: Setup, label: str, folder: Path, seed: int) -> Finding:
    """Follow one clip's flow, and a part of it with noise, each from the seed's initial weights.

    Raises UserError for a network or data that are too large or have no derivatives.
    """
    train = replace(run, seed=seed).load(folder).train
    batch, clip = _in_float64(train, setup.examples), setup.clips[label]

    def along(how: Steps) -> Flow:
        draw = seeds.generator(seed, "noise", torch.device("cpu"))
        return follow(_network(run, seed, setup.examples), batch, clip, how, draw)

    flow = along(Steps(setup.steps, setup.lr, 0.0, setup.every, setup.zero))
    apart = []
    for finer in (1, FINER):
        count, lr = setup.noise_steps * finer, setup.lr / finer
        noisy, plain = (along(Steps(count, lr, noise, None, 0.0)) for noise in (setup.noise, 0.0))
        apart.append(distance(noisy, plain))
    return Finding(label, seed, flow, (apart[0], apart[1]))


def distance(one: Flow, other: Flow) -> float:
    """The largest difference of two loss curves of equal steps, in units of the first loss."""
    pairs = zip(one.losses, other.losses, strict=True)
    return max(abs(a - b) for a, b in pairs) / one.losses[0]


def _in_float64(train: Split, count: int) -> Batch:
    if count > len(train):
        raise UserError(
            f"table.ntk.examples={count} is more than the {len(train)} training examples."
        )
    batch = train.at(torch.arange(count))
    if not batch.inputs.is_floating_point():
        raise UserError("the tangent kernel needs numbers to compute with: choose no texts.")
    return batch.each(lambda part: part.double() if part.is_floating_point() else part)


def _network(run: Run, seed: int, examples: int) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(seeds.derived(seed, "initial weights"))
        model = run.model.build(run.dataset.shape, run.dataset.classes)
    size = examples * run.dataset.classes * sum(p.numel() for p in model.parameters())
    if size > MOST_NUMBERS:
        raise UserError(
            f"the Jacobian would have {size:.1g} numbers: choose a smaller model or fewer "
            "table.ntk.examples."
        )
    return Network(model, LOSSES[run.dataset.task])
