"""The game of an audit: a run's real training, on canaries that are in its data or not.

No part of the run is reimplemented: its data are canaries, and its noise is recorded.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpbench.audit.canaries import (
    Canaries,
    CanaryModel,
    OneHotPatterns,
    Patterns,
    canary_users,
    random_signs,
    worst_case_norm,
)
from dpbench.audit.inference import Scores
from dpbench.audit.scores import MatchedFilter, ScoreAccumulator, WholeRunScores
from dpbench.errors import UserError
from dpbench.mechanism.method import Method
from dpbench.mechanism.noise import Noise
from dpbench.mechanism.step import PrivateStep
from dpbench.mechanism.streams import Stream
from dpbench.privacy.ledger import Ledger, Mechanism, Poisson
from dpbench.training.plan import Plan, Run, plan
from dpbench.training.progress import Progress
from dpbench.training.provenance import ResourceUsage
from dpbench.training.trainer import start_training

SHARED = 20
"""Coordinates for each canary, where canaries share them."""

COPIES = 3
"""Examples of each canary who is a user."""


class NoisySum(NamedTuple):
    """A noisy sum [D] in units of its sensitivity, and its noise multiplier."""

    noisy: Tensor
    multiplier: float


@dataclass(frozen=True)
class RecordingNoise:
    """Delegates to `base`, and records each noisy sum."""

    base: Noise
    releases: list[NoisySum] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def advance(self, total: Tensor, stream: Stream) -> "RecordingNoise":
        return RecordingNoise(self.base.advance(total, stream), self.releases)

    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        noisy = self.base.add(total, sensitivity, multiplier, stream)
        self.releases.append(NoisySum(noisy.detach().double() / sensitivity, multiplier))
        return noisy

    def pop(self, method: Method) -> tuple[Mechanism, Tensor]:
        """The last noisy sum, and the mechanism by which the method released it."""
        noisy, multiplier = self.releases.pop()
        return method.releases(multiplier)[0].mechanism, noisy

    def for_size(self, size: int) -> "RecordingNoise":
        return RecordingNoise(self.base.for_size(size), self.releases)

    def for_run(self, steps: int, cycle: int) -> "RecordingNoise":
        return RecordingNoise(self.base.for_run(steps, cycle), self.releases)


@dataclass(frozen=True)
class Game:
    """A finished game: the scores of one or more attacks, and the ledger of the run or step.

    attacked: the run or library, in words. delta, seed: of the audit.
    """

    name: str
    attacked: str
    attacks: tuple[Scores, ...]
    ledger: Ledger
    delta: float
    seed: int


@dataclass(frozen=True)
class RunGame(Game):
    """A game with a run of dpbench, and the parts of the run's record."""

    planned: Plan
    step: PrivateStep
    usage: ResourceUsage
    run: Run


def attacked(run: Run) -> str:
    """The method of a run, with its variant."""
    method = run.method
    return method.name if method.variant == "corrected" else f"{method.name} ({method.variant})"


def on_canaries(run: Run, number: int, patterns: Patterns | None = None) -> Run:
    """The run with `number` canaries in place of its data, and a model that is linear in theta.

    patterns: of at least `number` canaries; by default of that many.
    """
    patterns, length = patterns or _patterns(run, number), worst_case_norm(run.method.clip)
    counted = 2 if run.method.clip.by_output else 1  # classes, and groups to compare
    canaries = Canaries(
        patterns,
        number,
        length,
        groups=tuple(f"group {k}" for k in range(run.method.groups or counted)),
        copies=COPIES if run.method.users_only else 1,
        classes=counted,
    )
    users = canary_users(number, COPIES) if run.method.users_only else None
    return replace(run, dataset=canaries, model=CanaryModel(patterns, length), users=users)


def _patterns(run: Run, number: int) -> Patterns:
    if run.method.clip.per_coordinate:
        return random_signs(number, SHARED * number, run.seed)
    return OneHotPatterns(number)


def play_run(run: Run, quiet: bool = False) -> RunGame:
    """Train a run of `on_canaries` to its end, and score each canary by all that was released.

    The attacks are those of `ScoreAccumulator`.
    """
    dataset = run.dataset
    assert isinstance(dataset, Canaries)
    noise: Any = RecordingNoise(run.method.noise)
    run = replace(run, method=replace(run.method, noise=noise))
    planned, device = plan(run), torch.device("cpu")
    sampling = planned.sampler.law
    if not isinstance(sampling, Poisson):
        raise UserError("audits need sampler=poisson: their attacks are on Poisson samples.")
    data = run.load(Path())
    training = start_training(run, planned, device, data.train, data.test, ResourceUsage(device))
    scores = ScoreAccumulator if noise.base.bands else WholeRunScores
    accumulator = scores(dataset.patterns, dataset.number, sampling.cycle)
    matched = MatchedFilter(getattr(noise.base, "coefficients", (1.0,)))
    with Progress(planned, run.privacy.delta, quiet, 0) as progress:
        for _ in training:
            mechanism, noisy = noise.pop(planned.method)
            gradient = training.step.released.gradient
            assert gradient is not None
            if (added := matched(noisy)) is not None:
                accumulator.add(mechanism, sampling.rate, added, gradient)
            progress.advance()
    attacks = accumulator.attacks(dataset.included(run.seed))
    parts = planned, training.step, training.usage, run
    ledger, delta = training.ledger, run.privacy.delta
    return RunGame("run", attacked(run), attacks, ledger, delta, run.seed, *parts)
