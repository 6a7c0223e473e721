"""Attacks on audited code by canaries: all steps of a training, or single steps."""

from typing import Any

import torch
from torch import Tensor

from dpbench.audit.audit import GIVEN, AuditResult, NominalEpsilon, nominal_of, result_of
from dpbench.audit.canaries import OneHotPatterns, coins
from dpbench.audit.code.audited import Audited, AuditedStep, AuditedTraining
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import AuditBatch
from dpbench.audit.game import Game
from dpbench.audit.inference import Scores
from dpbench.audit.scores import ScoreAccumulator
from dpbench.privacy.ledger import GaussianMechanism
from dpbench.system.progress import counting

LEARNING_RATE = 2.0**-6
"""So small that a model, and with it the canary's gradient, hardly moves."""


def attack(
    code: Audited, canaries: int, nominal: float | None, confidence: float, seed: int
) -> AuditResult:
    """Attack all steps of a training whose model is linear; else single steps, as many as canaries.
    nominal: the epsilon that is claimed for the whole training, None for that of our PLD."""
    game = play(code, canaries, seed)
    if nominal is not None and game.name == "run":
        return result_of(game, NominalEpsilon(nominal, GIVEN), confidence)
    return result_of(game, nominal_of(game), confidence)


def play(code: Audited, canaries: int, seed: int) -> Game:
    """The attack's game, by all steps of a training or by single ones, as `attack` has it."""
    if isinstance(code, AuditedTraining) and code.is_linear:
        return _run(code, canaries, seed)
    return _steps(code, canaries, seed)


def _run(code: AuditedTraining, canaries: int, seed: int) -> Game:
    """All steps on canaries, of which a fair coin each decides whether they are in the data."""
    claim, included = code.claim, coins(seed, "canaries' coins", canaries)
    data = one_hot(included.nonzero().flatten().tolist(), LENGTH * claim.bound, canaries)
    mechanism = GaussianMechanism(claim.noise_multiplier)
    accumulator = ScoreAccumulator(OneHotPatterns(canaries), canaries)
    with counting("steps", claim.steps) as count:
        for noisy in code.released(data, seed=seed):
            accumulator.add(mechanism, claim.sample_rate, noisy, noisy)
            count()
    ledger = claim.ledger(claim.sample_rate, claim.steps)
    return Game("run", code.name, accumulator.attacks(included), ledger, claim.delta, seed)


def _steps(code: Audited, trials: int, seed: int) -> Game:
    """Steps on a companion and, by a fair coin for each, a canary."""
    _, companion, others = code.examples.unlike(code.claim.bound)
    both = AuditBatch(*map(torch.cat, zip(companion, others.at([0]), strict=True)))
    included = coins(seed, "canary's coins", trials)
    usual = code.exact_sum(companion)
    direction = code.exact_sum(both) - usual
    residuals = _releases(code, (companion, both), included, seed) - usual
    along = residuals @ direction / direction.norm().clamp(min=1e-12)
    attacks = tuple(
        Scores(values.numpy(), included.numpy()) for values in (along, -residuals.square().mean(1))
    )
    return Game("step", code.name, attacks, code.claim.ledger(1.0, 1), code.claim.delta, seed)


def _releases(
    code: Audited, batches: tuple[AuditBatch, AuditBatch], included: Tensor, seed: int
) -> Tensor:
    """The noisy sums [trials, D] of steps on the second batch where `included`, else the first."""
    settings: dict[str, Any] = {"learning_rate": LEARNING_RATE}
    if isinstance(code, AuditedStep):
        return code.sums_of([batches[coin] for coin in included.tolist()], seed=seed, **settings)
    without, with_canary = (
        code.sums(batch, len(included), seed=2 * seed + k, **settings)
        for k, batch in enumerate(batches)
    )
    return torch.where(included.unsqueeze(1), with_canary, without)
