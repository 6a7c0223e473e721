"""A table, ready to be rendered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpbench.metrics.paired import is_paired
from dpbench.records.divergence import note
from dpbench.tables import constants, grid, ordering, rulings
from dpbench.tables.cells import Cell, cells_of
from dpbench.tables.comparisons import Evidence, JudgedClaim, evidence
from dpbench.tables.grid import NO_VALUE, Grid, mean_and_spread
from dpbench.tables.privacy import NO_PLANS, TIGHT, Statement, privacy_grid
from dpbench.tables.published import PublishedTable, check_covered
from dpbench.tables.quantities import printed_table, quantity
from dpbench.tables.runs import Row, rows_of
from dpbench.tables.spec import PAPER_SCALE, TableSpec
from dpbench.tables.summary import cells_line, claims_line, order_line
from dpbench.tables.verdict import rule


@dataclass(frozen=True)
class Table:
    """What every renderer writes down: title, introduction, blocks of cells and notes.

    summary: what the verdicts come to; claims: each with its verdict.
    """

    name: str
    title: str
    introduction: tuple[str, ...]
    summary: tuple[str, ...]
    grids: tuple[Grid, ...]
    rules: tuple[str, ...]
    notes: tuple[str, ...]
    cells: tuple[Cell, ...]
    claims: tuple[JudgedClaim, ...] = ()


def build_table(
    spec: TableSpec,
    runs: pd.DataFrame,
    published: PublishedTable,
    *,
    epsilon: Mapping[str, str],
    impossible: Mapping[str, str],
    notes: Sequence[str],
    planned: Mapping[str, Statement] = NO_PLANS,
    claimed_by: str = "rdp",
) -> Table:
    """The table of a specification from runs, one row each, and the paper's printed numbers.

    runs: columns dataset, model, method, variant, seed, status (`complete` or `diverged`),
    `privacy/rdp|pld|gdp|guarantee|why|claimed|delta` and metrics `test/...`, in the units of the
    records, `condition` where the table has conditions, and `dropped` where gradients were counted
    that were not finite. epsilon: by condition, as printed for
    the private methods; impossible: name of a row to the reason why it has no runs on this data;
    notes: sentences to print below those of the specification; planned: name of a row without runs
    to what would hold of its epsilon; claimed_by: what the paper accounts by.
    Raises UserError where runs, specification and published numbers do not fit together.
    """
    check_covered(spec, published)
    rows = rows_of(spec, runs)
    cells = cells_of(spec, rows, published, impossible)
    privacy = privacy_grid(rows, epsilon, spec.baseline, planned, claimed_by)
    at_paper_scale = spec.scale_label == PAPER_SCALE
    known = evidence(spec.conditions, at_paper_scale, rows, printed_table(spec, published))
    judged = judge(spec, known)
    order, passed = ordering.order_of(spec, known), constants.constants(spec, published)
    blocks = [
        rulings.claims_grid(judged),
        _main(spec, rows, cells, impossible, privacy),
        *([_comparison(cells)] if published else []),
        ordering.order_grid(order),
        constants.constants_grid(passed if at_paper_scale else []),
        rulings.comparisons_grid(judged),
        privacy,
    ]
    return Table(
        spec.name,
        spec.title if at_paper_scale else f"{spec.title} (not at the paper's scale)",
        tuple(_introduction(spec)),
        tuple(filter(None, (claims_line(judged), cells_line(cells, passed), order_line(order)))),
        tuple(block for block in blocks if block.rows),
        tuple(_rules(spec, bool(published))),
        (*spec.notes, *notes, *_notes_on_runs(spec, rows, impossible)),
        tuple(cells),
        tuple(judged),
    )


def judge(spec: TableSpec, known: Evidence) -> list[JudgedClaim]:
    """Every claim of a table, in its order."""
    return [
        known.judge(claim, [quantity(name, spec.columns) for name in claim.quantities])
        for claim in spec.claims
    ]


def _rules(spec: TableSpec, published: bool) -> Iterable[str]:
    if spec.claims:
        yield rulings.RULE
    if published:
        yield rule(spec)
        yield ordering.RULE
        if spec.scale_label == PAPER_SCALE:
            yield constants.RULE


def _introduction(spec: TableSpec) -> Iterable[str]:
    yield f"{spec.paper}. Cells: mean ± {spec.spread} (number of runs). Scale: {spec.scale_label}."
    if spec.groups:
        yield "Groups: a = {}, b = {}.".format(*spec.groups)


def _main(
    spec: TableSpec,
    rows: Sequence[Row],
    cells: Sequence[Cell],
    impossible: Mapping[str, str],
    privacy: Grid,
) -> Grid:
    """The table as the paper has it, and what each method's epsilon is at most."""
    epsilons = {line[0]: line[privacy.head.index(TIGHT)] for line in privacy.rows}
    texts = {(cell.row, cell.column.name): mean_and_spread(cell) for cell in cells}
    names = [column.name for column in spec.columns]
    lines = [
        (row.label, f"not possible: {impossible[row.name]}")
        if row.name in impossible and row.runs.empty
        else (
            row.label,
            *(texts.get((row.label, name), NO_VALUE) for name in names),
            epsilons.get(row.label, NO_VALUE),
        )
        for row in rows
    ]
    return Grid("Ours", ("method", *names, f"epsilon ({TIGHT})"), tuple(lines))


def _comparison(cells: Sequence[Cell]) -> Grid:
    head = ("method", "column", "ours", "published", "difference", "verdict")
    lines = [
        (
            cell.row,
            cell.column.name,
            mean_and_spread(cell),
            grid.as_published(cell),
            grid.difference(cell),
            cell.verdict,
        )
        for cell in cells
    ]
    return Grid("Ours and published", head, tuple(lines))


def _notes_on_runs(
    spec: TableSpec, rows: Sequence[Row], impossible: Mapping[str, str]
) -> Iterable[str]:
    """What a reader must know of the runs that are not there or did not end well."""
    seeds_of_baseline = {
        (row.condition, seed)
        for row in rows
        if row.method == spec.baseline
        for seed in row.runs["seed"]
    }
    paired = any(is_paired(column.metric) for column in spec.columns)
    for row in rows:
        seeds = set(row.runs["seed"])
        if row.diverged:
            yield f"{row.label} diverged with seed {_list(row.diverged)}: its means are NaN."
        if said := note(row.label, row.dropped):
            yield said
        if row.name not in impossible and (absent := set(spec.seeds) - seeds):
            yield f"{row.label} has no run with seed {_list(absent)}."
        alone = {seed for seed in seeds if (row.condition, seed) not in seeds_of_baseline}
        if paired and alone:
            yield f"{row.label} has no {spec.baseline} run to pair with for seed {_list(alone)}."


def _list(seeds: Iterable[int]) -> str:
    return ", ".join(str(seed) for seed in sorted(seeds))
