"""One audit: a game, the bounds that its scores prove, and the verdict on the nominal epsilon."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from dpbench.audit import inference, releases
from dpbench.audit.canaries import Canaries
from dpbench.audit.companions import play_cut, play_memory
from dpbench.audit.game import Game, ReleasePart, RunGame, check_auditable, on_canaries, play_run
from dpbench.audit.inference import LowerBounds, Scores
from dpbench.audit.network import play_network
from dpbench.audit.steps import play_steps
from dpbench.audit.tradeoff import SearchAccount
from dpbench.comparison.tables.grid import Grid, grid_of
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.privacy.accountants import pld
from dpbench.privacy.guarantee import BOUNDS
from dpbench.runs.records.epsilon import REFUTED, rounded_down, rounded_up
from dpbench.runs.records.record import CANARIES, COVERED, Record
from dpbench.runs.training.plan import privacy_statement
from dpbench.runs.training.provenance import provenance
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError

NOT_REFUTED = "not refuted"

PAPER, GIVEN = "its paper", "given"

TOGETHER = "all releases"

DIGITS = 3
"""Decimals of epsilons: fewer would hide by how much an audit falls short of its claim."""


@dataclass(frozen=True)
class NominalEpsilon:
    """An epsilon under attack and its source; proven: whether it follows from the game's ledger."""

    epsilon: float
    source: str
    proven: bool = False


@dataclass(frozen=True)
class AuditResult:
    """The result of an attack on one run: lower bounds of epsilon at `confidence`.

    refuted: what is, in words: all releases together, or parts of the game, whose scores have a
    probability of at most 1e-4 over their number under the nominal epsilon.
    """

    game: Game
    scores: Scores
    nominal: NominalEpsilon
    bounds: LowerBounds
    confidence: float
    refuted: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Either "refuted" or "not refuted", which is no proof."""
        return REFUTED if self.refuted else NOT_REFUTED

    @property
    def ratio(self) -> float:
        """The audited lower bound over the nominal epsilon; NaN if that is 0."""
        return self.bounds.family / self.nominal.epsilon if self.nominal.epsilon else math.nan

    @property
    def of_paper(self) -> NominalEpsilon | None:
        """The epsilon by the reasoning of the method's paper; None if that has no accountant of its
        own, or if this is already the nominal epsilon."""
        game = self.game
        if not isinstance(game, RunGame):
            return None
        if game.run.method.own_accountant is None or self.nominal.source == PAPER:
            return None
        epsilon = privacy_statement(game.run, game.planned, game.ledger)["claimed"]
        return None if epsilon is None else NominalEpsilon(epsilon, PAPER)

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.refuted:
            says = "is refuted: under it the scores of {} would be all but impossible"
            says = says.format(" and of ".join(self.refuted))
        else:
            says = "is not refuted, and not confirmed either; more canaries or steps attack harder"
        return (
            f"At {100 * self.confidence:g}% confidence the run spends an epsilon of at least "
            f"{rounded_down(self.bounds.family, 3)}, by this attack. The nominal epsilon "
            f"of {rounded_up(self.nominal.epsilon, 3)} {says}."
        )

    def against(self, nominal: NominalEpsilon) -> "AuditResult":
        """The same attack on another epsilon."""
        return replace(
            self, nominal=nominal, refuted=refuted_parts(self.game, self.scores, nominal)
        )

    @property
    def plain(self) -> dict:
        """The plain values that the run's record stores as `privacy.audit`."""
        return {
            "epsilon": self.bounds.family,
            "confidence": self.confidence,
            "gdp": self.bounds.gdp,
            "one_run": self.bounds.one_run,
            "canaries": len(self.scores.values),
            "claimed": self.nominal.epsilon,
            "claimed_by": self.nominal.source,
            "verdict": self.verdict,
        }


GAMES = {
    "run": lambda run, canaries, quiet: play_run(on_canaries(run, canaries), quiet),
    "step": lambda run, canaries, quiet: play_steps(run, canaries),
    "memory": lambda run, canaries, quiet: play_memory(run, canaries),
    "cut": lambda run, canaries, quiet: play_cut(run, canaries),
    "normalization": lambda run, canaries, quiet: releases.play_normalization(run, canaries),
    "columns": lambda run, canaries, quiet: releases.play_columns(run, canaries),
    "temperature": lambda run, canaries, quiet: releases.play_temperature(run, canaries),
    "conformal": lambda run, canaries, quiet: releases.play_conformal(run, canaries),
    "network": lambda run, canaries, quiet: play_network(run, canaries),
    "search": lambda run, canaries, quiet: releases.play_search(run, canaries),
}


def audit(
    run: Run,
    canaries: int,
    nominal: float | None = None,
    confidence: float = CONFIDENCE,
    game: str = "run",
    quiet: bool = False,
) -> AuditResult:
    """Attack a run, whose data and model are replaced by canaries. nominal: an epsilon to refute,
    instead of that of the ledger or the paper. game: of GAMES; "run" for all canaries in one run,
    others for one canary in each of so many steps, runs or releases."""
    check_auditable(run)
    played = GAMES[game](run, canaries, quiet)
    epsilon = _nominal(played) if nominal is None else NominalEpsilon(nominal, GIVEN)
    return result_of(played, epsilon, confidence)


def result_of(game: Game, nominal: NominalEpsilon, confidence: float) -> AuditResult:
    """The audit of an epsilon by the strongest attack of a game."""
    scores = inference.strongest_attack(game.attacks, game.seed)
    proven = inference.bounds(scores, game.ledger, game.delta, confidence, game.seed)
    return AuditResult(
        game, scores, nominal, proven, confidence, refuted_parts(game, scores, nominal)
    )


def nominal_of(game: Game) -> NominalEpsilon:
    """The epsilon of a game's account."""
    if isinstance(game.ledger, SearchAccount):
        cost = game.ledger.cost(game.delta)
        return NominalEpsilon(cost.epsilon, cost.by.upper(), proven=True)
    return NominalEpsilon(pld(game.ledger, game.delta), "PLD", proven=True)


def _nominal(game: Game) -> NominalEpsilon:
    if not isinstance(game, RunGame):
        return nominal_of(game)
    statement = privacy_statement(game.run, game.planned, game.ledger)
    if statement["guarantee"] in BOUNDS and statement["pld"] not in (None, math.inf):
        return NominalEpsilon(statement["pld"], "PLD", proven=True)
    if statement["pld"] == math.inf:
        raise UserError("no epsilon holds for so little noise: give one to refute, e.g. claim=3.")
    if statement["claimed"] is None:
        raise UserError(f"{game.run.method.name} claims no epsilon: give one, e.g. claim=3.")
    return NominalEpsilon(statement["claimed"], PAPER)


def refuted_parts(game: Game, scores: Scores, nominal: NominalEpsilon) -> tuple[str, ...]:
    """What of a game refutes the nominal epsilon: all its releases together, or one alone."""
    tests = (ReleasePart(TOGETHER, scores, game.ledger), *game.parts)

    def is_refuted(part: ReleasePart) -> bool:
        of, delta, seed = (part.scores, part.ledger), game.delta, game.seed
        if nominal.proven:
            return inference.refutes(*of, delta, seed, len(tests))
        level = inference.refutation_level(len(tests))
        return inference.bounds(*of, delta, level, seed).family > nominal.epsilon

    return tuple(part.what for part in tests if is_refuted(part))


def record_of(result: AuditResult) -> Record:
    """The audited run as a record for the report, without metrics; of a `RunGame`."""
    game = result.game
    assert isinstance(game, RunGame)
    run = game.run
    dataset, model = run.dataset, "network"
    described: dict[str, str | float] = {"game": game.name}
    if isinstance(dataset, Canaries):
        described |= {"number": dataset.number, "copies": dataset.copies, "length": dataset.length}
        model = "linear"
    choices = run.config["choices"] | {"dataset": CANARIES, "model": model}
    config = run.config | {"choices": choices, "dataset": described, "model": {}}
    return Record(
        config=config,
        metrics={},
        privacy=privacy_statement(run, game.planned, game.ledger) | {"audit": result.plain},
        provenance=provenance(game.step, torch.device("cpu"), run.precision, game.usage),
        status="complete",
        covered=COVERED,
    )


COLUMNS: dict[str, Callable[[AuditResult], str]] = {
    "method": lambda a: a.game.attacked,
    "attacked": lambda a: a.game.name,
    "canaries": lambda a: str(len(a.scores.values)),
    "steps": lambda a: str(a.game.ledger.steps),
    "claimed": lambda a: rounded_up(a.nominal.epsilon, DIGITS),
    "by": lambda a: a.nominal.source,
    "audited (own family)": lambda a: rounded_down(a.bounds.family, DIGITS),
    "audited (GDP)": lambda a: rounded_down(a.bounds.gdp, DIGITS),
    "audited (one run)": lambda a: rounded_down(a.bounds.one_run, DIGITS),
    "audited / claimed": lambda a: rounded_down(a.ratio),
    "verdict": lambda a: a.verdict,
}


def audit_grid(heading: str, audits: Iterable[AuditResult]) -> Grid:
    """A grid with a row for each audit."""
    return grid_of(heading, COLUMNS, audits)
