"""The second game: one canary, known all others, and each step judged by itself.

For each step a coin decides whether the canary is in the data; another, which the attacker knows,
whether a companion is in the batch. The steps then are independent trials of one step's guarantee,
and what the attacker sees is all that the ledger says is released: the noisy sum, the noisy counts
of an adaptive clip, and the gradient that the update is given.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.audit.canaries import Canaries, OneEach, Patterns, random_signs
from dpbench.audit.game import Overheard, Release, RunGame, on_canaries, run_game
from dpbench.audit.inference import Scores
from dpbench.audit.scores import sampled, step_scores
from dpbench.clipping import Clip
from dpbench.data.dataset import Split
from dpbench.errors import UserError
from dpbench.mechanism.step import PrivateStep
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.seeds import generator
from dpbench.training.plan import Run, plan
from dpbench.training.provenance import ResourceUsage
from dpbench.training.trainer import private_step

CANARY, COMPANION, COORDINATES = 0, 1, 64
"""The coordinates of the two, and how many there are: the others have noise alone."""

SHARED_COORDINATES = 2000
"""How many the canary moves where each is bounded; it then has no companion."""

NOTHING_RELEASED = 1e6
"""How sure the attacker is that the canary is absent if a step released nothing."""


@dataclass
class OverheardClip:
    """A clip as it is, whose noisy counts are told."""

    base: Clip
    noisy_counts: list[Tensor] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def _of(self, base: Clip) -> "OverheardClip":
        return OverheardClip(base, self.noisy_counts)

    def updated(self, counts: Tensor, expected_batch_size: float) -> "OverheardClip":
        self.noisy_counts.append(counts.detach().double())
        return self._of(self.base.updated(counts, expected_batch_size))

    def for_groups(self, groups: int) -> "OverheardClip":
        return self._of(self.base.for_groups(groups))

    def for_size(self, size: int) -> "OverheardClip":
        return self._of(self.base.for_size(size))

    def for_layers(self, names: list[str]) -> "OverheardClip":
        return self._of(self.base.for_layers(names))


@dataclass(frozen=True)
class Attacker:
    """Takes steps with or without the canary and its companion, and scores what they release.

    rate: the probability that a canary in the data is in the batch. members: the two. noise,
    noisy_counts: where the step's releases are overheard.
    """

    rate: float

    step: PrivateStep
    patterns: Patterns
    members: Split
    noise: Overheard
    noisy_counts: list[Tensor]

    def scores(self, drawn: bool, beside: bool) -> tuple[float, float]:
        """Of two attacks: the likelihood ratio, and the same with whether the noise has half of
        its standard deviation, as where a sum is divided by the real size of its batch.

        drawn, beside: whether the canary and its companion are in the batch.
        """
        clip = self.step.clip
        self.step(self.members.at(torch.tensor([CANARY] * drawn + [COMPANION] * beside).long()))
        if not self.noise.releases:
            return -NOTHING_RELEASED, -NOTHING_RELEASED
        release, sent = self.noise.releases.pop(), self.step.released.gradient
        assert sent is not None
        ratio = self._of_sum(release, sent) + self._of_counts(clip, beside, release.multiplier)
        likelihood = float(sampled(torch.tensor(ratio, dtype=torch.float64), self.rate))
        noise = sent.double()[COMPANION + 1 :] * self.step.expected_batch_size / clip.sensitivity
        return likelihood, likelihood + beside * _halved(noise / release.multiplier)

    def _of_sum(self, release: Release, sent: Tensor) -> float:
        (mechanism, *_) = (r.mechanism for r in self.step.method.releases(release.multiplier))
        return float(step_scores(mechanism, 1.0, release.noisy, sent, self.patterns)[CANARY])

    def _of_counts(self, clip: Clip, beside: bool, multiplier: float) -> float:
        """The log-likelihood ratio of the noisy counts, of which the companion's are known."""
        if not clip.query:
            return 0.0
        lengths, groups = -2 * self.members.targets, self.members.groups
        canary, companion = (clip.counts(lengths[[k]], groups[[k]]).double() for k in (0, 1))
        noisy = self.noisy_counts.pop() - beside * companion
        spread = clip.query.multiplier(multiplier)
        return float((2 * noisy @ canary - canary @ canary) / (2 * spread**2))


def _halved(noise: Tensor) -> float:
    """The log-likelihood ratio of noise [k] having a standard deviation of 1/2 instead of 1."""
    return len(noise) * math.log(2) - 1.5 * float(noise @ noise)


def play_alone(run: Run, trials: int) -> RunGame:
    """So many steps with or without the canary, scored by all that each released.

    The ledger is that of one step, at the rate of a batch of the run's size among so many. Raises
    UserError for users and for schedules, which `play` attacks.
    """
    if run.method.users_only:
        raise UserError(f"game=step has one example; {run.method.name} needs game=run.")
    if run.schedule:
        raise UserError("game=step has steps that are all alike; a schedule needs game=run.")
    usage, heard = ResourceUsage(torch.device("cpu")), Overheard(run.method.noise)
    clip: Any = OverheardClip(run.method.clip)
    patterns, rate = _patterns(run), min(1.0, run.batch_size / trials)
    run = replace(on_canaries(run, 1, patterns), batch_size=1, epochs=1)
    assert isinstance(run.dataset, Canaries)
    members = run.dataset.split(torch.tensor([CANARY, COMPANION]))
    run = replace(run, method=replace(run.method, noise=heard, clip=clip))
    planned = plan(run)
    step = private_step(run, planned, torch.device("cpu"))
    attacker = Attacker(rate, step, patterns, members, heard, clip.noisy_counts)
    draw = generator(run.seed, "canary's coins", torch.device("cpu"))
    there, beside = torch.rand(2, trials, generator=draw) < 0.5
    drawn = there & (torch.rand(trials, generator=draw) < rate)
    beside &= not patterns.shared
    coins = zip(drawn.tolist(), beside.tolist(), strict=True)
    scores = np.array([attacker.scores(*pair) for pair in coins])
    ledger = Ledger().after(Step(Poisson(rate), planned.step.releases))
    attacks = tuple(Scores(of_attack, there.numpy()) for of_attack in scores.T)
    return run_game("step", attacks, ledger, planned, step, usage, run)


def _patterns(run: Run) -> Patterns:
    if run.method.clip.per_coordinate:
        return random_signs(2, SHARED_COORDINATES, run.seed)
    return OneEach(COORDINATES)
