"""One audit: a game, what its scores prove, and what becomes of the epsilon that was claimed."""

import math
from dataclasses import dataclass, replace

import torch

from dpbench.audit.alone import play_alone
from dpbench.audit.canaries import Canaries
from dpbench.audit.game import Game, RunGame, on_canaries, play
from dpbench.audit.inference import CERTAIN, Bounds, Scores, bounds, refutes, sharpest
from dpbench.errors import UserError
from dpbench.records.record import COVERED, Record
from dpbench.training.plan import Run, privacy_statement
from dpbench.training.provenance import provenance

HOLDS, REFUTED = "holds", "refuted"

PAPER, GIVEN = "its paper", "given"


@dataclass(frozen=True)
class Claim:
    """An epsilon and who says so; proven: whether by our ledger, and not by a number alone."""

    epsilon: float
    source: str
    proven: bool = False


@dataclass(frozen=True)
class Audit:
    """What an attack on one run found; lower bounds of epsilon at `confidence`.

    verdict: "refuted" where the scores are impossible under the claim but for a chance of 1e-4;
    "holds" says that this attack found nothing, and is no proof.
    """

    game: Game
    scores: Scores
    claim: Claim
    bounds: Bounds
    confidence: float
    verdict: str

    @property
    def ratio(self) -> float:
        """The share of the claimed epsilon that the attack accounts for."""
        return self.bounds.own / self.claim.epsilon if self.claim.epsilon else math.nan

    @property
    def papers_claim(self) -> Claim | None:
        """What the method's paper would say of the run, where that is by an accountant of its own
        and is not attacked already."""
        game = self.game
        if not isinstance(game, RunGame):
            return None
        if game.run.method.claimed_by is None or self.claim.source == PAPER:
            return None
        epsilon = privacy_statement(game.run, game.planned, game.ledger)["claimed"]
        return None if epsilon is None else Claim(epsilon, PAPER)

    def against(self, claim: Claim) -> "Audit":
        """The same attack, held against another claim."""
        return replace(self, claim=claim, verdict=_verdict(self.game, self.scores, claim))

    @property
    def plain(self) -> dict:
        """For the record of the run, as `privacy.audit`."""
        return {
            "epsilon": self.bounds.own,
            "confidence": self.confidence,
            "gdp": self.bounds.gdp,
            "one_run": self.bounds.one_run,
            "canaries": len(self.scores.values),
            "claimed": self.claim.epsilon,
            "claimed_by": self.claim.source,
            "verdict": self.verdict,
        }


GAMES = {
    "run": lambda run, canaries, quiet: play(on_canaries(run, canaries), quiet),
    "step": lambda run, canaries, quiet: play_alone(run, canaries),
}


def check_auditable(run: Run) -> None:
    """UserError for a run that no canary can say anything of."""
    if not run.method.private:
        raise UserError(f"{run.method.name} adds no noise: its epsilon is infinite, as it says.")


def audit(
    run: Run,
    canaries: int,
    claimed: float | None = None,
    confidence: float = 0.95,
    game: str = "run",
    quiet: bool = False,
) -> Audit:
    """Attack a run that was built for any data set: canaries take the place of its data and model.

    claimed: an epsilon to refute, in the place of the one that the ledger or the paper has. game:
    "run" for all canaries in one run, "step" for one canary in so many steps, each by itself.
    """
    check_auditable(run)
    played = GAMES[game](run, canaries, quiet)
    claim = _claim(played) if claimed is None else Claim(claimed, GIVEN)
    return judged(played, claim, confidence)


def judged(game: Game, claim: Claim, confidence: float) -> Audit:
    """What the sharpest attack of a game proves, held against a claim."""
    scores = sharpest(game.attacks, game.seed)
    found = bounds(scores, game.ledger, game.delta, confidence, game.seed)
    return Audit(game, scores, claim, found, confidence, _verdict(game, scores, claim))


def _claim(game: RunGame) -> Claim:
    statement = privacy_statement(game.run, game.planned, game.ledger)
    if statement["guarantee"] == "proven" and statement["pld"] is not None:
        return Claim(statement["pld"], "PLD", proven=True)
    if statement["claimed"] is None:
        raise UserError(f"nobody claims an epsilon of {game.run.method.name}: give one, claim=3.")
    return Claim(statement["claimed"], PAPER)


def _verdict(game: Game, scores: Scores, claim: Claim) -> str:
    ledger, delta, seed = game.ledger, game.delta, game.seed
    if claim.proven:
        return REFUTED if refutes(scores, ledger, delta, seed) else HOLDS
    least = bounds(scores, ledger, delta, CERTAIN, seed).own
    return REFUTED if least > claim.epsilon else HOLDS


def record_of(result: Audit) -> Record:
    """The audited run as a record that the report shows; it has no metrics."""
    game = result.game
    assert isinstance(game, RunGame)
    run = game.run
    dataset = run.dataset
    assert isinstance(dataset, Canaries)
    described = {
        **{"number": dataset.number, "copies": dataset.copies, "length": dataset.length},
        "game": game.name,
    }
    choices = run.config["choices"] | {"dataset": "canaries", "model": "linear"}
    config = run.config | {"choices": choices, "dataset": described, "model": {}}
    return Record(
        config=config,
        metrics={},
        privacy=privacy_statement(run, game.planned, game.ledger) | {"audit": result.plain},
        provenance=provenance(game.step, torch.device("cpu"), run.precision, game.usage),
        status="complete",
        covered=COVERED,
    )
