"""The game of single steps: one canary, and an attacker who knows all other examples.

Before each step coins decide whether the canary is in the data, and, known to the attacker, whether
a companion is in the batch: independent trials of one step's guarantee. The attacker sees all that
the ledger lists as released: noisy sum and counts, and the gradient that is passed to the update.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.audit.canaries import MAX_NORM, Canaries, OneHotPatterns, Patterns, WalshPatterns
from dpbench.audit.game import (
    RunGame,
    last_release,
    on_canaries,
    parts_of,
    recorded_step,
    run_game,
)
from dpbench.audit.inference import Scores
from dpbench.audit.scores import sampled, step_scores
from dpbench.learning.data.examples import Split
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.runs.training.run import Run
from dpbench.step.mechanism.method import COUNTS
from dpbench.step.mechanism.step import PrivateStep, Recorder, exact_counts
from dpbench.system.errors import UserError
from dpbench.system.seeds import generator

CANARY, COMPANION, COORDINATES = 0, 1, 64
"""The coordinates of canary and companion, and the number of coordinates: the others have only
noise."""

SHARED_COORDINATES = 2048
"""The number of coordinates where each is bounded: the canary moves all, and has no companion."""

EXTREME_NORMS = (MAX_NORM, 1e-6)
"""Gradient norms of which one moves the counts of a clip farthest."""

NOTHING_RELEASED = 1e6
"""The log-likelihood ratio against the canary where a step released nothing."""


class StepRatios(NamedTuple):
    """Log-likelihood ratios of what a step released, for a canary that is in its batch if it is in
    the data: of the sum, of the counts, and of noise in the sum with half the standard deviation,
    as where the sum is divided by its real batch size."""

    sum: float
    counts: float
    halved_noise: float


@dataclass(frozen=True)
class Attacker:
    """Takes steps with or without the canary and its companion, and scores what they release.
    members: canary and companion. recorder: the recorder of the step."""

    step: PrivateStep
    patterns: Patterns
    members: Split
    recorder: Recorder

    def ratios(self, canary: bool, companion: bool = False) -> StepRatios:
        """The ratios of a step. canary, companion: whether each is in the batch."""
        clip, exact = self.step.clip, self.exact_counts(companion)
        present = torch.tensor([canary, companion]).nonzero().flatten()
        self.step(self.members.at(present))
        if not self.recorder.sums:
            return StepRatios(-NOTHING_RELEASED, 0.0, 0.0)
        multiplier, gradient = self.recorder.sums[-1].multiplier, self.step.released.gradient
        assert gradient is not None
        mechanism, noisy = last_release(self.step)
        of_sum = float(step_scores(mechanism, 1.0, noisy, gradient, self.patterns)[CANARY])
        noise = gradient.double()[COMPANION + 1 :] * self.step.expected_batch_size
        noise = noise / clip.sensitivity.bound / multiplier
        halved = len(noise) * math.log(2) - 1.5 * float(noise @ noise)
        return StepRatios(of_sum, self._ratio_of_counts(exact, multiplier), companion * halved)

    @property
    def on_counts(self) -> "Attacker":
        """The attacker whose canary moves the counts farthest, be its gradient large or small."""
        if not self.members.targets.is_floating_point():
            return self  # counts of predictions, which do not depend on the gradient
        targets = (torch.full_like(self.members.targets, -norm / 2) for norm in EXTREME_NORMS)
        others = (replace(self, members=replace(self.members, targets=t)) for t in targets)
        return max((self, *others), key=lambda one: float(one.exact_counts(False)[CANARY].norm()))

    def exact_counts(self, companion: bool) -> tuple[Tensor, ...]:
        """The exact counts of the canary and, if it is in the batch, of the companion; empty for a
        clip without a query."""
        clip, step = self.step.clip, self.step
        if not clip.query:
            return ()
        present = (CANARY, COMPANION) if companion else (CANARY,)
        members = [self.members.at(torch.tensor([member])) for member in present]
        gradients = [step.gradient(step.engine, m, clip, step.released) for m in members]
        return tuple(
            exact_counts(clip, one, clip.norms(one), member.groups).double()
            for one, member in zip(gradients, members, strict=True)
        )

    def _ratio_of_counts(self, exact: tuple[Tensor, ...], multiplier: float) -> float:
        if not exact:
            return 0.0
        canary, *others = exact
        noisy = self.recorder.noisy_counts.pop() - sum(others)
        assert self.step.clip.query
        spread = self.step.clip.query.multiplier(multiplier)
        return float((2 * noisy @ canary - canary @ canary) / (2 * spread**2))


def play_steps(run: Run, trials: int) -> RunGame:
    """Take `trials` steps with or without the canary, each scored by everything it released.

    The ledger is that of one step, with sampling rate batch_size/trials. If a clip is adaptive, sum
    and counts are also scored each alone, the counts in as many further steps. Raises UserError for
    users, schedules, correlated noise and other samplers, which `play_run` attacks.
    """
    check_single_steps(run, "step")
    patterns, rate = _patterns(run), min(1.0, run.batch_size / trials)
    run = replace(on_canaries(run, 1, patterns), batch_size=1, epochs=1)
    assert isinstance(run.dataset, Canaries)
    members = run.dataset.split(torch.tensor([CANARY, COMPANION]))
    recorded = planned, step, _ = recorded_step(run)
    assert step.recorder
    attacker = Attacker(step, patterns, members, step.recorder)
    draw = generator(run.seed, "canary's coins", torch.device("cpu"))
    included, companion = torch.rand(2, trials, generator=draw) < 0.5
    in_batch = included & (torch.rand(trials, generator=draw) < rate)
    companion &= not patterns.shared
    coins = zip(in_batch.tolist(), companion.tolist(), strict=True)
    ratios = torch.tensor([attacker.ratios(*pair) for pair in coins], dtype=torch.float64)
    likelihood = sampled(ratios[:, :2].sum(1), rate)
    attacks = (likelihood, likelihood + ratios[:, 2])
    alone: tuple[Tensor, ...] = ()
    if step.clip.query:
        loudest = attacker.on_counts
        of_counts = [loudest.ratios(canary).counts for canary in in_batch.tolist()]
        alone = ratios[:, 0], torch.tensor(of_counts, dtype=torch.float64)
        alone = tuple(sampled(values, rate) for values in alone)

    def scores(values: Tensor) -> Scores:
        return Scores(values.numpy(), included.numpy())

    gradient, *counts = planned.step.releases
    both = gradient, *(counts or [replace(gradient, what=COUNTS)])  # of a joint release, too
    ledger = Ledger().after(Step(Poisson(rate), planned.step.releases))
    parts = parts_of(Step(Poisson(rate), both[: len(alone)]), map(scores, alone))
    game = run_game("step", tuple(map(scores, attacks)), ledger, run, recorded)
    return replace(game, parts=parts)


def check_single_steps(run: Run, game: str) -> None:
    """UserError for users, schedules, correlated noise and samplers, which need a whole run."""
    if run.method.users_only:
        raise UserError(f"game={game} attacks single examples; {run.method.name} needs game=run.")
    if run.sampler != "poisson":
        raise UserError(
            f"game={game} draws its canary itself: {run.sampler} batches need game=run."
        )
    if run.schedule:
        raise UserError(f"all steps of game={game} are alike; a schedule needs game=run.")
    if run.method.noise.bands != 1:
        raise UserError(
            f"game={game} attacks single steps, and noise of {run.method.name} is correlated over "
            f"{run.method.noise.bands or 'all'}: use game=run."
        )


def _patterns(run: Run) -> Patterns:
    if run.method.clip.sensitivity.per_coordinate:
        return WalshPatterns(2, SHARED_COORDINATES)
    return OneHotPatterns(COORDINATES)
