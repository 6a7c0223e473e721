"""Builds a table, ready to be rendered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dpbench.comparison.compare.side import AT_EDGE, ELSEWHERE, Tuning
from dpbench.comparison.tables import summary
from dpbench.comparison.tables.cells import COMPARED, TableCell, cells_of
from dpbench.comparison.tables.claims import grids as claim_grids
from dpbench.comparison.tables.claims.comparisons import ClaimEvidence, JudgedClaim
from dpbench.comparison.tables.claims.quantities import printed_table, quantity
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.data import Reproduced
from dpbench.comparison.tables.edition import PAPER_SCALE, Edition
from dpbench.comparison.tables.grid import NO_VALUE, Grid, grid_of
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.comparison.tables.privacy import (
    EVERYTHING_WAS_RUN,
    TIGHTEST,
    NotRun,
    RowPrivacy,
    privacy_grid,
    privacy_of,
)
from dpbench.comparison.tables.published import PublishedTable, check_covered
from dpbench.comparison.tables.runs import FlatRun, Row, rows_of
from dpbench.comparison.tables.verdict import rule, scores_line
from dpbench.learning.metrics.derived import is_paired
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT
from dpbench.privacy.statement import ACCOUNTANTS
from dpbench.runs.records.divergence import note
from dpbench.system.grouping import grouped


@dataclass(frozen=True)
class ResultTable:
    """A table of runs or measurements, and what its files say of it.

    summary: of the verdicts; rules: of the verdicts, in words; claims: with their verdicts; rows:
    with their runs; privacy: of rows; printed: counts of printed numbers at the paper's scale;
    command: the one that makes the table; foot: grids of the page alone, after the notes.
    """

    name: str
    title: str
    introduction: tuple[str, ...]
    summary: tuple[str, ...]
    grids: tuple[Grid, ...]
    rules: tuple[str, ...]
    notes: tuple[str, ...]
    cells: tuple[TableCell, ...]
    claims: tuple[JudgedClaim, ...] = ()
    rows: tuple[Row, ...] = field(default=(), compare=False)
    privacy: tuple[RowPrivacy, ...] = ()
    printed: Reproduced | None = None
    command: str = ""
    foot: tuple[Grid, ...] = ()

    @property
    def page(self) -> Page:
        rules = ["## Rules and notes", *self.rules, self.notes] if self.rules or self.notes else []
        blocks: list[PageBlock] = [
            *self.introduction,
            self.summary,
            *self.grids,
            *rules,
            *self.foot,
        ]
        return Page(self.title, blocks, self.command)

    @property
    def latex(self) -> str:
        """The page for a paper: the introduction is in the captions."""
        page = Page(self.title, [self.summary, *self.grids, self.rules, self.notes])
        return page.latex(" ".join(self.introduction)) + "\n"

    def files(self, csv: str) -> dict[str, bytes]:
        """By suffix. csv: the text of the CSV file, whose columns differ between tables."""
        return {**self.page.files, "csv": csv.encode(), "tex": self.latex.encode()}


def build_table(
    edition: Edition,
    runs: Sequence[FlatRun],
    published: PublishedTable,
    *,
    epsilon: Mapping[str, str],
    notes: Sequence[str],
    not_run: NotRun = EVERYTHING_WAS_RUN,
    paper_accountant: str = DEFAULT_PAPER_ACCOUNTANT,
) -> ResultTable:
    """The table of an edition, from runs and the paper's printed numbers.

    runs: by dataset, model, method, variant, seed, status,
    `privacy/rdp|pld|gdp|guarantee|why|claimed|delta`, metrics `test/...` in the units of the
    records, `condition` where the table has conditions, and `nonfinite`, the number of such
    gradients. epsilon: as printed for private methods, by condition; notes: beside the
    specification's. Raises UserError where these do not match.
    """
    edition.check()
    check_covered(edition, published)
    file, rows = edition.table, rows_of(edition, runs)
    cells = cells_of(edition, rows, published, not_run.reasons)
    privacy = privacy_of(rows, epsilon, file.baseline, not_run.statements)
    reasons = _why_no_runs(edition, not_run.reasons)
    at_paper_scale = edition.scale_label == PAPER_SCALE
    found_in_print = printed_table(edition, published)
    again = edition.second_search
    data = ClaimEvidence(edition.labels, rows, found_in_print, edition.tuning, again)
    judged = [
        data.judge(claim, [quantity(name, edition.columns) for name in claim.quantities])
        for claim in edition.claims
    ]
    order, baselines = summary.order_of(edition, data), summary.constants(edition, published)
    judged_constants = baselines if at_paper_scale else []
    counts = summary.reproduced(baselines, cells) if at_paper_scale else None
    lines = (
        summary.claims_line(judged),
        claim_grids.chance_line(judged),
        claim_grids.power_line(judged),
        scores_line(cell.distance for cell in cells if cell.distance),
        summary.constants_line(judged_constants, counts),
        summary.order_line(order),
    )
    grids = [
        claim_grids.claims_grid(judged),
        _main(edition, rows, cells, reasons, privacy),
        grid_of("Ours and published", COMPARED, cells if published else []),
        grid_of("Order of the rows", summary.ORDER_COLUMNS, order.items()),
        grid_of("What a constant would pass", summary.CONSTANTS_COLUMNS, judged_constants),
        claim_grids.comparisons_grid(judged),
        privacy_grid(privacy, paper_accountant),
    ]
    return ResultTable(
        name=edition.name,
        title=edition.title if at_paper_scale else f"{edition.title} (not at the paper's scale)",
        introduction=tuple(filter(None, (summary.opening(cells), *_introduction(edition)))),
        summary=tuple(filter(None, lines)),
        grids=tuple(block for block in grids if block.rows),
        rules=tuple(_rules(edition, bool(published))),
        notes=(
            *(*file.notes, *_notes_on_tuning(edition), *notes),
            *_notes_on_runs(edition, rows, reasons),
        ),
        cells=tuple(cells),
        claims=tuple(judged),
        rows=tuple(rows),
        privacy=tuple(privacy),
        printed=counts,
    )


def _rules(edition: Edition, published: bool) -> Iterable[str]:
    if edition.claims:
        yield from claim_grids.rules_of(edition.claims)
    if published:
        yield rule(edition)
        yield summary.ORDER_RULE
        if edition.scale_label == PAPER_SCALE:
            yield summary.CONSTANTS_RULE


def _introduction(edition: Edition) -> Iterable[str]:
    cells = f"Cells: mean ± {edition.table.spread} (number of runs)"
    yield f"{edition.table.paper}. {cells}. Scale: {edition.scale_label}."
    if edition.groups:
        yield "Groups: a = {}, b = {}.".format(*edition.groups)


def _why_no_runs(edition: Edition, impossible: Mapping[str, str]) -> dict[str, str]:
    waiting = {
        row_name(condition, method): f"not run: {what}"
        for condition in edition.labels
        for method, what in edition.table.planned.items()
    }
    return waiting | {name: f"not possible: {reason}" for name, reason in impossible.items()}


def _main(
    edition: Edition,
    rows: Sequence[Row],
    cells: Sequence[TableCell],
    reasons: Mapping[str, str],
    privacy: Iterable[RowPrivacy],
) -> Grid:
    epsilons = {stated.label: stated.epsilons[TIGHTEST] for stated in privacy}
    texts = {(cell.row, cell.column.name): cell.text for cell in cells}
    names = [column.name for column in edition.columns]
    lines = [
        (row.label, reasons[row.name])
        if row.name in reasons and not row.runs
        else (
            row.label,
            *(texts.get((row.label, name), NO_VALUE) for name in names),
            epsilons.get(row.label, NO_VALUE),
        )
        for row in rows
    ]
    return Grid(
        "Ours", ("method", *names, f"epsilon ({ACCOUNTANTS[TIGHTEST].label})"), tuple(lines)
    )


def _notes_on_trials(tuning: Mapping[str, Tuning]) -> Iterable[str]:
    of_method = [(row.rpartition(", ")[2], t) for row, t in tuning.items()]
    if counts := grouped((t.trials, method) for method, t in of_method if t.trials):
        usual = max(counts, key=lambda trials: len({*counts[trials]}))
        others = [f"{n} for {_names(methods)}" for n, methods in counts.items() if n != usual]
        yield f"Trials of each search: {'; '.join([str(usual), *others])}."
    for case, methods in grouped((t.unsearched, name) for name, t in of_method).items():
        if case:
            yield (
                f"No verdict beside {case} counts against {_names(methods)}: {case} is a special "
                "case, whose setting not all searches tried."
            )


def _names(methods: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(methods))


def _notes_on_tuning(edition: Edition) -> Iterable[str]:
    yield from _notes_on_trials(edition.tuning)
    flaws = grouped((t.flaw, row) for row, t in edition.tuning.items() if t.flaw)
    searched = " and ".join(f"{key}={value}" for key, value in edition.table.tuned_at.items())
    if at_edge := flaws.get(AT_EDGE):
        yield (
            "Tuned at an edge of the range that was searched: "
            f"{'; '.join(at_edge)}. Another range might serve them better, so no verdict counts "
            "against them."
        )
    if ELSEWHERE in flaws:
        yield (
            f"The searches were made at {searched}. Other settings might serve a row better under "
            "other conditions, so no verdict counts against it there."
        )
    if edition.table.searches > 1:
        yield (
            f"A row has {edition.table.searches} searches. Comparisons pair the means over the "
            "seeds after each search, which they count in place of seeds, so that an interval "
            "covers the search and the seed."
        )
    for method, again in edition.second_search.items():
        yield (
            f"A verdict on {method} is decided only if it is shown beside {again}, too: what "
            "is not may be the luck of a search."
        )
    if edition.claims and (flaws or edition.second_search):
        yield "A claim is undecided, too, where tuning leaves most of its comparisons undecided."


def _notes_on_runs(
    edition: Edition, rows: Sequence[Row], reasons: Mapping[str, str]
) -> Iterable[str]:
    baseline = edition.table.baseline
    seeds_of_baseline = {
        (row.condition, run["seed"]) for row in rows if row.method == baseline for run in row.runs
    }
    paired = any(is_paired(column.metric) for column in edition.columns)
    for row in rows:
        seeds = {run["seed"] for run in row.runs}
        if row.diverged:
            yield f"{row.label} diverged with seed {_list(row.diverged)}: its means are NaN."
        if sentence := note(row.label, row.nonfinite):
            yield sentence
        if row.name not in reasons and (missing := set(edition.table.seeds) - seeds):
            yield f"{row.label} has no run with seed {_list(missing)}."
        unpaired = {seed for seed in seeds if (row.condition, seed) not in seeds_of_baseline}
        if paired and unpaired:
            yield f"{row.label} has no {baseline} run to pair with for seed {_list(unpaired)}."


def _list(seeds: Iterable[int]) -> str:
    return ", ".join(str(seed) for seed in sorted(seeds))
