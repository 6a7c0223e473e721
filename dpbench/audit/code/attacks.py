"""Attacks on audited code by canaries: all steps of a training, or single steps."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dpbench.audit.audit import GIVEN, AuditResult, NominalEpsilon, nominal_of, result_of
from dpbench.audit.canaries import coins
from dpbench.audit.code.audited import Audited, AuditedStep, AuditedTraining
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import AuditBatch
from dpbench.audit.game import Game
from dpbench.audit.inference import Scores
from dpbench.audit.peers.contenders import play_contender_run
from dpbench.audit.peers.peer import PeerTask, StepRelease
from dpbench.privacy.accountants import pld

LEARNING_RATE = 2.0**-6
"""So small that a model, and with it the canary's gradient, hardly moves."""


class AuditedPeer:
    """A training as the audits of other libraries take it: it accounts for what is claimed."""

    accountant = "PLD"

    def __init__(self, code: AuditedTraining, task: PeerTask):
        self.library, self._code, self._task = code.name, code, task

    def steps(self) -> Iterator[StepRelease]:
        task, bound = self._task, self._code.claim.bound
        data = one_hot(task.members.tolist(), LENGTH * bound, task.size)
        about: dict[str, Any] = {"sample_rate": task.rate, "steps": task.steps, "seed": task.seed}
        yield from map(StepRelease, self._code.released(data, **about))

    def history(self) -> list[tuple[float, float, int]]:
        return [(self._task.noise_multiplier, self._task.rate, self._task.steps)]

    def epsilon(self, delta: float) -> float:
        claim = self._code.claim
        return pld(claim.ledger(self._task.rate, self._task.steps), delta)


def attack(
    code: Audited, canaries: int, nominal: float | None, confidence: float, seed: int
) -> AuditResult:
    """Attack all steps of a training whose model is linear; else single steps, as many as canaries.
    nominal: the epsilon that is claimed for the whole training, None for that of our PLD."""
    if not (isinstance(code, AuditedTraining) and code.is_linear):
        game = _steps(code, canaries, seed)
        return result_of(game, nominal_of(game), confidence)
    game = _run(code, canaries, seed)
    epsilon = nominal_of(game) if nominal is None else NominalEpsilon(nominal, GIVEN)
    return result_of(game, epsilon, confidence)


def _run(code: AuditedTraining, canaries: int, seed: int) -> Game:
    claim = code.claim
    members = coins(seed, "canaries' coins", canaries).nonzero().flatten()
    settings = (claim.sample_rate, claim.noise_multiplier, claim.steps, seed)
    task = PeerTask(canaries, members, *settings)
    return play_contender_run(lambda task: AuditedPeer(code, task), task, claim.delta)[0]


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
