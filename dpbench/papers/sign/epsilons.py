"""Epsilons of runs with signs of logistic noise: the note's, upper bounds, and a lower bound."""

from collections.abc import Sequence

from dpbench.execution.prepare import prepare
from dpbench.privacy.accountants import lower_bound, note, pld, rdp
from dpbench.records.epsilon import rounded_down, rounded_up
from dpbench.reproduce.page import page
from dpbench.reproduce.target import Target
from dpbench.tables.grid import Grid
from dpbench.tables.markdown import bullets, grid_lines
from dpbench.tables.tidy import csv_text

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
    lines = [
        _line(condition.label, overrides)
        for condition in target.conditions
        for method in target.table["methods"]
        for overrides in target.cells_of(condition, method)
    ]
    text = page(
        target,
        f"{target.table['paper']}. Scale: {target.scale_label}. Epsilons of planned runs.",
        f"- {claim([(line[6], line[9]) for line in lines])}",
        grid_lines(Grid("", HEAD, tuple(lines))),
        bullets(target.table["notes"]),
    )
    return {"md": text, "csv": csv_text(HEAD, lines).encode()}


def claim(epsilons: Sequence[tuple[str, str]]) -> str:
    """A sentence on whether the note's epsilons are upper bounds.

    epsilons: pairs of the note's epsilon and a lower bound of the true one.
    """
    below = sum(float(note) < float(lower) for note, lower in epsilons)
    runs = f"{below} of {len(epsilons)} runs"
    verdict = f"does not hold: in {runs} it is below what is surely spent" if below else "holds"
    return f"1 claim: the note's formula (section 2) is an upper bound of epsilon. It {verdict}."


def _line(label: str, overrides: list[str]) -> tuple[str, ...]:
    _, run, planned = prepare(overrides)
    delta, step = run.privacy.delta, planned.step
    printed, *upper, lower = (
        spend(planned.ledger, delta) for spend in (note, rdp, pld, lower_bound)
    )
    return (
        label,
        str(step.releases[0].mechanism.dimension),  # type: ignore[union-attr]
        f"{planned.sampler.expected_batch_size / run.dataset.train_size:.4g}",
        str(planned.steps),
        f"{planned.noise_multiplier:.4g}",
        f"{delta:g}",
        f"{printed:.3f}",
        *(rounded_up(epsilon, 3) for epsilon in upper),
        rounded_down(lower, 3),
    )
