"""The game that an audit plays: a run's real training, on canaries that were or were not there.

Nothing of the run is written a second time here: its data are canaries, its noise is overheard.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.audit.canaries import (
    Canaries,
    Model,
    OneEach,
    Patterns,
    canary_users,
    random_signs,
    worst_length,
)
from dpbench.audit.inference import Scores
from dpbench.audit.scores import Tally
from dpbench.errors import UserError
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


class Release(NamedTuple):
    """A noisy sum [D] in units of its sensitivity, and its noise multiplier."""

    noisy: Tensor
    multiplier: float


@dataclass(frozen=True)
class Overheard:
    """Noise as it is, of which each noisy sum is told."""

    base: Noise
    releases: list[Release] = field(default_factory=list)

    @property
    def per_coordinate(self) -> bool:
        return self.base.per_coordinate

    @property
    def private(self) -> bool:
        return self.base.private

    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        noisy = self.base.add(total, sensitivity, multiplier, stream)
        self.releases.append(Release(noisy.detach().double() / sensitivity, multiplier))
        return noisy

    def mechanism(self, multiplier: float) -> Mechanism:
        return self.base.mechanism(multiplier)

    def for_size(self, size: int) -> "Overheard":
        return Overheard(self.base.for_size(size), self.releases)


@dataclass(frozen=True)
class Game:
    """What an audit has seen: the scores of one or more attacks, and the ledger of what they were
    on, a run or a step.

    trained: what was attacked, in words. delta, seed: of the audit.
    """

    name: str
    trained: str
    attacks: tuple[Scores, ...]
    ledger: Ledger
    delta: float
    seed: int


@dataclass(frozen=True)
class RunGame(Game):
    """A game with a run of ours, and what its record is made of."""

    planned: Plan
    step: PrivateStep
    usage: ResourceUsage
    run: Run


def run_game(
    name: str,
    attacks: tuple[Scores, ...],
    ledger: Ledger,
    planned: Plan,
    step: PrivateStep,
    usage: ResourceUsage,
    run: Run,
) -> RunGame:
    """The game that a run was."""
    method = run.method
    variant = "" if method.variant == "corrected" else f" ({method.variant})"
    trained, delta = method.name + variant, run.privacy.delta
    return RunGame(name, trained, attacks, ledger, delta, run.seed, planned, step, usage, run)


def on_canaries(run: Run, number: int, patterns: Patterns | None = None) -> Run:
    """The run with so many canaries in the place of its data, and a model that never moves.

    patterns: of at least so many canaries, by default of that number.
    """
    patterns = patterns or _patterns(run, number)
    canaries = Canaries(
        patterns,
        number,
        worst_length(run.method.clip),
        groups=tuple(f"group {k}" for k in range(run.method.groups or 1)),
        copies=COPIES if run.method.users_only else 1,
    )
    users = canary_users(number, COPIES) if run.method.users_only else None
    return replace(run, dataset=canaries, model=Model(patterns), users=users)


def _patterns(run: Run, number: int) -> Patterns:
    if run.method.clip.per_coordinate:
        return random_signs(number, SHARED * number, run.seed)
    return OneEach(number)


def play(run: Run, quiet: bool = False) -> RunGame:
    """Train a run of `on_canaries` to its end, and score each canary by all that was released.

    The attacks are those of `Tally`.
    """
    dataset = run.dataset
    assert isinstance(dataset, Canaries)
    overheard = Overheard(run.method.noise)
    run = replace(run, method=replace(run.method, noise=overheard))
    planned, device = plan(run), torch.device("cpu")
    sampling = planned.sampler.law
    if not isinstance(sampling, Poisson):
        raise UserError("audits know the chances of sampler=poisson; no other has an epsilon.")
    data = run.load(Path())
    training = start_training(run, planned, device, data.train, data.test, ResourceUsage(device))
    tally = Tally(dataset.patterns, dataset.number)
    with Progress(planned, run.privacy.delta, quiet, 0) as progress:
        for _ in training:
            noisy, multiplier = overheard.releases.pop()
            (mechanism, *_) = (r.mechanism for r in planned.method.releases(multiplier))
            sent = training.step.released.gradient
            assert sent is not None
            tally.hear(mechanism, sampling.rate, noisy, sent)
            progress.advance()
    attacks = tally.attacks(dataset.included(run.seed))
    return run_game("run", attacks, training.ledger, planned, training.step, training.usage, run)
