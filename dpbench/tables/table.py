"""A table, ready to be rendered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpbench.divergence import note
from dpbench.metrics.paired import PER_GROUP, is_paired
from dpbench.metrics.significance import signed_rank
from dpbench.tables import grid
from dpbench.tables.cells import Cell, cells_of
from dpbench.tables.gaps import gaps_grid
from dpbench.tables.grid import NOTHING, Grid, mean_and_spread, number
from dpbench.tables.ordering import same_order
from dpbench.tables.privacy import NO_PLANS, TIGHT, Statement, privacy_grid
from dpbench.tables.published import PublishedTable, check_covered
from dpbench.tables.runs import Row, rows_of
from dpbench.tables.spec import PAPER_SCALE, Column, TableSpec
from dpbench.tables.verdict import compares_gaps, rule


@dataclass(frozen=True)
class Table:
    """What every renderer writes down: title, introduction, blocks of cells and notes."""

    name: str
    title: str
    introduction: tuple[str, ...]
    grids: tuple[Grid, ...]
    rule: str
    notes: tuple[str, ...]
    cells: tuple[Cell, ...]


def build_table(
    spec: TableSpec,
    runs: pd.DataFrame,
    published: PublishedTable,
    *,
    epsilon: Mapping[str, str],
    impossible: Mapping[str, str],
    notes: Sequence[str],
    planned: Mapping[str, Statement] = NO_PLANS,
) -> Table:
    """The table of a specification from runs, one row each, and the paper's printed numbers.

    runs: columns dataset, model, method, variant, seed, status (`complete` or `diverged`),
    `privacy/rdp|pld|gdp|guarantee|why|claimed|delta` and metrics `test/...`, in the units of the
    records, `condition` where the table has conditions, and `dropped` where gradients were counted
    that were not finite. epsilon: by condition, as printed for
    the private methods; impossible: name of a row to the reason why it has no runs on this data;
    notes: sentences to print below those of the specification; planned: name of a row without runs
    to what would hold of its epsilon.
    Raises UserError where runs, specification and published numbers do not fit together.
    """
    check_covered(spec, published)
    rows = rows_of(spec, runs)
    cells = cells_of(spec, rows, published, impossible)
    privacy = privacy_grid(rows, epsilon, spec.baseline, planned)
    blocks = [
        _main(spec, rows, cells, impossible, privacy),
        *([_comparison(cells), _ordering(spec, cells)] if published else []),
        *([gaps_grid(spec, rows, published)] if compares_gaps(spec) else []),
        privacy,
        _significance(spec, rows),
    ]
    return Table(
        spec.name,
        spec.title if spec.scale == PAPER_SCALE else f"{spec.title} (not at the paper's scale)",
        tuple(_introduction(spec)),
        tuple(block for block in blocks if block.rows),
        rule(spec) if published else "",
        (*spec.notes, *notes, *_notes_on_runs(spec, rows, impossible)),
        tuple(cells),
    )


def _introduction(spec: TableSpec) -> Iterable[str]:
    yield f"{spec.paper}. Cells: mean ± {spec.spread} (number of runs). Scale: {spec.scale}."
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
            *(texts.get((row.label, name), NOTHING) for name in names),
            epsilons.get(row.label, NOTHING),
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


def _ordering(spec: TableSpec, cells: Sequence[Cell]) -> Grid:
    """Pairs under one condition, added up over all of them."""
    lines = []
    for column in spec.columns:
        of_column = [cell for cell in cells if cell.column == column]
        counts = [
            same_order(cell for cell in of_column if cell.condition == condition)
            for condition in spec.conditions
        ]
        same, pairs = map(sum, zip(*counts, strict=True))
        if pairs:
            lines.append((column.name, f"{same} of {pairs}"))
    return Grid("Order of the methods", ("column", "pairs in the published order"), tuple(lines))


def _significance(spec: TableSpec, rows: Sequence[Row]) -> Grid:
    """Against the reference; a group's privacy cost moves with its accuracy, so has no test."""
    references = {row.condition: row for row in reversed(rows) if row.method == spec.reference}
    columns = [column for column in spec.columns if not column.metric.startswith(PER_GROUP)]
    head = ("method", *(f"{column.name} {column.better}" for column in columns))
    heading = f"Better than {spec.reference}: p of the one-sided Wilcoxon signed-rank test (seeds)"
    lines = [
        (row.label, *(_p_value(spec, row, references[row.condition], column) for column in columns))
        for row in rows
        if len(row.runs) and (reference := references.get(row.condition))
        if row is not reference and len(reference.runs)
    ]
    return Grid(heading, head, tuple(lines))


def _p_value(spec: TableSpec, row: Row, reference: Row, column: Column) -> str:
    if row.method == spec.baseline and is_paired(column.metric):
        return NOTHING
    ours, theirs = row.values(column.metric), reference.values(column.metric)
    p, n = signed_rank(ours, theirs, column.better)
    return f"{number(p, 3)} ({n})" if n else NOTHING


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
