"""The game of single steps: one canary, and an attacker who knows all other examples.

Before each step a coin decides whether the canary is in the data, and another, which the attacker
knows, whether a companion is in the batch. So the steps are independent trials of one step's
guarantee. The attacker sees everything that the ledger lists as released: the noisy sum, the
noisy counts of an adaptive clip, and the gradient that is passed to the update.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dpbench.audit.canaries import Canaries, OneHotPatterns, Patterns, WalshPatterns
from dpbench.audit.game import RunGame, attacked, last_release, on_canaries
from dpbench.audit.inference import Scores
from dpbench.audit.scores import sampled, step_scores
from dpbench.data.dataset import Split
from dpbench.mechanism.step import PrivateStep, Recorder, exact_counts
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.system.errors import UserError
from dpbench.system.seeds import generator
from dpbench.training.plan import plan
from dpbench.training.provenance import ResourceUsage
from dpbench.training.run import Run
from dpbench.training.start import private_step

CANARY, COMPANION, COORDINATES = 0, 1, 64
"""The coordinates of canary and companion, and the number of coordinates: the others have only
noise."""

SHARED_COORDINATES = 2048
"""The number of coordinates where each is bounded: the canary moves all, and has no companion."""

NOTHING_RELEASED = 1e6
"""The log-likelihood ratio against the canary where a step released nothing."""


@dataclass(frozen=True)
class Attacker:
    """Takes steps with or without the canary and its companion, and scores what they release.

    rate: the probability that a canary in the data is in the batch. members: canary and companion.
    recorder: the recorder of the step.
    """

    rate: float
    step: PrivateStep
    patterns: Patterns
    members: Split
    recorder: Recorder

    def scores(self, canary: bool, companion: bool) -> tuple[float, float]:
        """The scores of two attacks: the log-likelihood ratio, and its sum with that of noise with
        half the standard deviation, as where a sum is divided by its real batch size.

        canary, companion: whether each is in the batch.
        """
        clip, exact = self.step.clip, self._exact_counts(companion)
        present = torch.tensor([canary, companion]).nonzero().flatten()
        self.step(self.members.at(present))
        if not self.recorder.sums:
            return -NOTHING_RELEASED, -NOTHING_RELEASED
        multiplier, gradient = self.recorder.sums[-1].multiplier, self.step.released.gradient
        assert gradient is not None
        ratio = self._ratio_of_sum(gradient) + self._ratio_of_counts(exact, multiplier)
        likelihood = float(sampled(torch.tensor(ratio, dtype=torch.float64), self.rate))
        noise = gradient.double()[COMPANION + 1 :] * self.step.expected_batch_size
        standardised = noise / clip.sensitivity.bound / multiplier
        return likelihood, likelihood + companion * _ratio_of_halved_noise(standardised)

    def _ratio_of_sum(self, gradient: Tensor) -> float:
        mechanism, noisy = last_release(self.step)
        return float(step_scores(mechanism, 1.0, noisy, gradient, self.patterns)[CANARY])

    def _exact_counts(self, companion: bool) -> tuple[Tensor, ...]:
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
        """The log-likelihood ratio of the noisy counts, given the companion's."""
        if not exact:
            return 0.0
        canary, *others = exact
        noisy = self.recorder.noisy_counts.pop() - sum(others)
        assert self.step.clip.query
        spread = self.step.clip.query.multiplier(multiplier)
        return float((2 * noisy @ canary - canary @ canary) / (2 * spread**2))


def _ratio_of_halved_noise(noise: Tensor) -> float:
    """The log-likelihood ratio of noise [k] having a standard deviation of 1/2 instead of 1."""
    return len(noise) * math.log(2) - 1.5 * float(noise @ noise)


def play_steps(run: Run, trials: int) -> RunGame:
    """Take `trials` steps with or without the canary, each scored by everything it released.

    The ledger is that of one step, with sampling rate batch_size/trials. Raises UserError for
    users, schedules, correlated noise and other samplers, which `play_run` attacks.
    """
    check_single_steps(run, "step")
    usage = ResourceUsage(torch.device("cpu"))
    patterns, rate = _patterns(run), min(1.0, run.batch_size / trials)
    run = replace(on_canaries(run, 1, patterns), batch_size=1, epochs=1)
    assert isinstance(run.dataset, Canaries)
    members = run.dataset.split(torch.tensor([CANARY, COMPANION]))
    planned = plan(run)
    step, recorder = private_step(run, planned, torch.device("cpu")), Recorder()
    step.recorder = recorder
    attacker = Attacker(rate, step, patterns, members, recorder)
    draw = generator(run.seed, "canary's coins", torch.device("cpu"))
    included, companion = torch.rand(2, trials, generator=draw) < 0.5
    in_batch = included & (torch.rand(trials, generator=draw) < rate)
    companion &= not patterns.shared
    coins = zip(in_batch.tolist(), companion.tolist(), strict=True)
    scores = np.array([attacker.scores(*pair) for pair in coins])
    ledger = Ledger().after(Step(Poisson(rate), planned.step.releases))
    attacks = tuple(Scores(of_attack, included.numpy()) for of_attack in scores.T)
    delta, parts = run.privacy.delta, (planned, step, usage, run)
    return RunGame("step", attacked(run), attacks, ledger, delta, run.seed, *parts)


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
