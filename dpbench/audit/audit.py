"""One audit: a game, the bounds that its scores prove, and the verdict on the claimed epsilon."""

import math
from dataclasses import dataclass, replace

import torch

from dpbench.audit.canaries import Canaries
from dpbench.audit.game import Game, RunGame, check_auditable, on_canaries, play_run
from dpbench.audit.inference import (
    REFUTATION_LEVEL,
    Bounds,
    Scores,
    bounds,
    refutes,
    strongest_attack,
)
from dpbench.audit.steps import play_steps
from dpbench.metrics.students_t import CONFIDENCE
from dpbench.privacy.guarantee import BOUNDS
from dpbench.records.epsilon import REFUTED, rounded_down, rounded_up
from dpbench.records.record import CANARIES, COVERED, Record
from dpbench.system.errors import UserError
from dpbench.training.plan import privacy_statement
from dpbench.training.provenance import provenance
from dpbench.training.run import Run

NOT_REFUTED = "not refuted"

PAPER, GIVEN = "its paper", "given"


@dataclass(frozen=True)
class AuditedClaim:
    """A claimed epsilon and its source; proven: whether it follows from the game's ledger."""

    epsilon: float
    source: str
    proven: bool = False


@dataclass(frozen=True)
class Audit:
    """The result of an attack on one run: lower bounds of epsilon at `confidence`.

    verdict: "refuted" if the scores have a probability of at most 1e-4 under the claim, else "not
    refuted", which is no proof. At 95% confidence one bound in twenty exceeds a claim that is true.
    """

    game: Game
    scores: Scores
    claim: AuditedClaim
    bounds: Bounds
    confidence: float
    verdict: str

    @property
    def ratio(self) -> float:
        """The audited lower bound over the claimed epsilon; NaN for a claim of 0."""
        return self.bounds.family / self.claim.epsilon if self.claim.epsilon else math.nan

    @property
    def papers_claim(self) -> AuditedClaim | None:
        """What the method's paper would claim; None if it has no accountant of its own, or if this
        is already the audited claim."""
        game = self.game
        if not isinstance(game, RunGame):
            return None
        if game.run.method.own_accountant is None or self.claim.source == PAPER:
            return None
        epsilon = privacy_statement(game.run, game.planned, game.ledger)["claimed"]
        return None if epsilon is None else AuditedClaim(epsilon, PAPER)

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.verdict == REFUTED:
            says = "is refuted: under it these scores would be all but impossible"
        else:
            says = "is not refuted, and not confirmed either; more canaries or steps attack harder"
        return (
            f"At {100 * self.confidence:g}% confidence the run spends an epsilon of at least "
            f"{rounded_down(self.bounds.family, 3)}, by this attack. The claim of "
            f"{rounded_up(self.claim.epsilon, 3)} {says}."
        )

    def against(self, claim: AuditedClaim) -> "Audit":
        """The same attack on another claim."""
        return replace(self, claim=claim, verdict=_verdict(self.game, self.scores, claim))

    @property
    def plain(self) -> dict:
        """The plain values that the run's record stores as `privacy.audit`."""
        return {
            "epsilon": self.bounds.family,
            "confidence": self.confidence,
            "gdp": self.bounds.gdp,
            "one_run": self.bounds.one_run,
            "canaries": len(self.scores.values),
            "claimed": self.claim.epsilon,
            "claimed_by": self.claim.source,
            "verdict": self.verdict,
        }


GAMES = {
    "run": lambda run, canaries, quiet: play_run(on_canaries(run, canaries), quiet),
    "step": lambda run, canaries, quiet: play_steps(run, canaries),
}


def audit(
    run: Run,
    canaries: int,
    claimed: float | None = None,
    confidence: float = CONFIDENCE,
    game: str = "run",
    quiet: bool = False,
) -> Audit:
    """Attack a run, whose data and model are replaced by canaries.

    claimed: an epsilon to refute, instead of that of the ledger or the paper. game: "run" for all
    canaries in one run, "step" for one canary in `canaries` independent steps.
    """
    check_auditable(run)
    played = GAMES[game](run, canaries, quiet)
    claim = _claim(played) if claimed is None else AuditedClaim(claimed, GIVEN)
    return judge(played, claim, confidence)


def judge(game: Game, claim: AuditedClaim, confidence: float) -> Audit:
    """The audit of a claim by the strongest attack of a game."""
    scores = strongest_attack(game.attacks, game.seed)
    proven = bounds(scores, game.ledger, game.delta, confidence, game.seed)
    return Audit(game, scores, claim, proven, confidence, _verdict(game, scores, claim))


def _claim(game: RunGame) -> AuditedClaim:
    statement = privacy_statement(game.run, game.planned, game.ledger)
    if statement["guarantee"] in BOUNDS and statement["pld"] not in (None, math.inf):
        return AuditedClaim(statement["pld"], "PLD", proven=True)
    if statement["pld"] == math.inf:
        raise UserError("no epsilon holds for so little noise: give one to refute, e.g. claim=3.")
    if statement["claimed"] is None:
        raise UserError(f"{game.run.method.name} claims no epsilon: give one, e.g. claim=3.")
    return AuditedClaim(statement["claimed"], PAPER)


def _verdict(game: Game, scores: Scores, claim: AuditedClaim) -> str:
    ledger, delta, seed = game.ledger, game.delta, game.seed
    if claim.proven:
        return REFUTED if refutes(scores, ledger, delta, seed) else NOT_REFUTED
    least = bounds(scores, ledger, delta, REFUTATION_LEVEL, seed).family
    return REFUTED if least > claim.epsilon else NOT_REFUTED


def record_of(result: Audit) -> Record:
    """The audited run as a record for the report, without metrics."""
    game = result.game
    assert isinstance(game, RunGame)
    run = game.run
    dataset = run.dataset
    assert isinstance(dataset, Canaries)
    described = {
        "number": dataset.number,
        "copies": dataset.copies,
        "length": dataset.length,
        "game": game.name,
    }
    choices = run.config["choices"] | {"dataset": CANARIES, "model": "linear"}
    config = run.config | {"choices": choices, "dataset": described, "model": {}}
    return Record(
        config=config,
        metrics={},
        privacy=privacy_statement(run, game.planned, game.ledger) | {"audit": result.plain},
        provenance=provenance(game.step, torch.device("cpu"), run.precision, game.usage),
        status="complete",
        covered=COVERED,
    )
