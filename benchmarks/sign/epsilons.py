"""Epsilons of runs with signs of logistic noise: the note's, upper bounds, and a lower bound."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.privacy.accountants import lower_bound, note, pld, rdp
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.statement import Statement
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.epsilon import delta_text, legend, rounded_down, rounded_up
from dpbench.runs.training.plan import privacy_statement


class PlannedEpsilons(NamedTuple):
    """Of one planned run: by the note's formula, two upper bounds, and a lower bound."""

    note: float
    rdp: float
    pld: float
    least: float


HEAD = (
    "run",
    "parameters",
    "rate",
    "steps",
    "noise multiplier",
    "delta",
    "the note's formula",
    "at most (RDP)",
    "at most (PLD)",
    "at least",
)


def sign_epsilons(target: Target) -> dict[str, bytes]:
    """The files of the table by suffix, with a row per condition; nothing is trained."""
    return planned_table(target, HEAD, _row, claim)


def planned_table(
    target: Target,
    head: tuple[str, ...],
    row: Callable[[str, list[str]], tuple[tuple[str, ...], Any, Statement]],
    claim: Callable[[Sequence[Any]], str],
    source: str = "",
) -> dict[str, bytes]:
    """The files of a table of planned runs by suffix.

    row: from a condition and the overrides of a run, its line, its epsilons and its statement.
    claim: a sentence on the epsilons of all runs. source: what they are from, at the end of the
    sentence that says what they are of.
    """
    rows = [
        row(condition.label, overrides)
        for condition in target.conditions
        for method in target.table.methods
        for overrides in target.cells_of(condition, method)
    ]
    lines, spent, stated = zip(*rows, strict=True)
    grid = Grid("", head, lines)
    text = target.page(
        f"{target.table.paper}. Scale: {target.scale_label}. Epsilons of planned runs{source}.",
        [claim(spent)],
        grid,
        legend(stated),
        target.table.notes,
    )
    return {**text.files, "csv": grid.csv.encode()}


def claim(runs: Sequence[PlannedEpsilons]) -> str:
    """A sentence on whether the note's epsilons are upper bounds: they are where they are above a
    proven one, and are not where they are below a lower bound."""
    below = sum(run.note < run.least for run in runs)
    open_ = sum(run.least <= run.note < min(run.rdp, run.pld) for run in runs)
    verdict = "holds"
    if below:
        verdict = f"does not hold: in {below} of {len(runs)} runs it is below what is surely spent"
    elif open_:
        verdict = f"is undecided: in {open_} of {len(runs)} runs it is between the bounds"
    return f"1 claim: the note's formula (section 2) is an upper bound of epsilon. It {verdict}."


def _row(label: str, overrides: list[str]) -> tuple[tuple[str, ...], PlannedEpsilons, Statement]:
    """The line of a planned run, its epsilons, and its privacy statement."""
    run, planned = prepare(run_config(overrides))
    delta, mechanism = run.privacy.delta, planned.step.releases[0].mechanism
    assert isinstance(mechanism, CoordinateMechanism)  # of a sign
    spent = PlannedEpsilons(
        *(spend(planned.ledger, delta) for spend in (note, rdp, pld, lower_bound))
    )
    line = (
        label,
        str(mechanism.dimension),
        f"{planned.sampler.expected_batch_size / run.dataset.train_size:.4g}",
        str(planned.steps),
        f"{planned.noise_multiplier:.4g}",
        delta_text(delta),
        f"{spent.note:.3f}",
        rounded_up(spent.rdp, 3),
        rounded_up(spent.pld, 3),
        rounded_down(spent.least, 3),
    )
    return line, spent, privacy_statement(run, planned)
