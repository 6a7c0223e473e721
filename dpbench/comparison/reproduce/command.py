"""`dpbench reproduce TABLE`: executes the missing runs of a paper's table, then renders it.

Or, with power=P, says how many seeds would decide its comparisons, and the cost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dpbench.comparison.reproduce.figure import check_figure
from dpbench.comparison.reproduce.render import for_paper, judged_claims, render
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.reproduce.target_runs import (
    execute,
    mean_seconds,
    not_run,
    plan_runs,
    table_records,
)
from dpbench.comparison.tables.claims.comparisons import RowComparison
from dpbench.comparison.tables.claims.grids import PLACE
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import NO_VALUE, Grid, counted, number
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.verdict import UNDECIDED
from dpbench.learning.metrics.paired_t import LEVEL, MOST_SEEDS
from dpbench.runs.config.buildable import function
from dpbench.runs.config.commands import ReproduceCommand
from dpbench.runs.config.settings import split_settings
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.code import is_stale
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.training.tracking import log_table
from dpbench.system.errors import UserError, print_message
from dpbench.system.files import check_writable, write_atomically
from dpbench.system.grouping import grouped

NEVER = f"more than {MOST_SEEDS}"


class SeedPlan(NamedTuple):
    """An undecided comparison of a claim, and the seeds that would decide it; None for too many."""

    claim: str
    comparison: RowComparison
    seeds: int | None

    @property
    def rows(self) -> list[str]:
        """The names of the rows that need these seeds."""
        c = self.comparison
        return [row_name(c.condition, row) for row in (c.row, c.than) if isinstance(row, str)]

    @property
    def missing(self) -> int:
        """How many more seeds these are than there are."""
        return max(0, (self.seeds or 0) - len(self.comparison.gaps))


def power_page(target: Target, power: float) -> str:
    """The undecided comparisons of a table as Markdown, each with the number of seeds that decides
    it with that probability, and what the missing runs cost.

    It takes the measured gaps and spreads for the true ones, and nothing is run. Raises UserError
    for a table without claims, and where none of its runs has a record.
    """
    if not target.claims:
        raise UserError(f"{target.name} makes no claims that seeds could decide.")
    records = _records(target)
    plans = [
        SeedPlan(judged.claim.name, c, c.found.test.seeds_needed(power, LEVEL / len(comparisons)))
        for judged in judged_claims(target, records)
        for comparisons in [judged.comparisons]
        for c in comparisons
        if c.found and c.verdict == UNDECIDED and not c.reason
    ]
    costs = mean_seconds(
        (row_name(p.condition, p.method), p.record) for p in target.placed(records)
    )
    lines = [
        (plan.claim, *(text(plan.comparison) for text in PLACE.values()), *_needed(plan, costs))
        for plan in plans
    ]
    grid = Grid("Undecided comparisons", ("claim", *PLACE, "seeds", "hours"), tuple(lines))
    blocks = [
        _total(plans, costs),
        grid if plans else "",
        "Seeds: the least number that shows a gap, or that it is smaller than the margin, with "
        f"this probability, if the true gap and spread are those measured, at {100 * LEVEL:g}% "
        "divided by the number of comparisons of the claim. Few seeds measure a spread badly: plan "
        "for more, and fix the number before looking. Hours: of the runs of both rows that are "
        "missing, at the seconds of those recorded.",
    ]
    return Page(f"{target.title}: seeds for a power of {100 * power:g}%", blocks).markdown


def _records(target: Target) -> list[Record]:
    tables = table_records(target)
    runs = [run_config(cell) for cell in target.cells()]
    found = (load(run.path) or tables.get(run.digest) for run in runs)
    records = [record for record in found if record]
    if not records:
        raise UserError(
            f"{target.config.results} has no run of {target.name} to measure a spread by: "
            f"`{target.command}` makes them, and `table.seeds=[0,1,2]` only some."
        )
    return records


def _missing(plans: Iterable[SeedPlan]) -> dict[str, int]:
    needed = grouped((row, plan.missing) for plan in plans for row in plan.rows)
    return {row: max(numbers) for row, numbers in needed.items()}


def _hours(plans: Iterable[SeedPlan], costs: Mapping[str, float]) -> str:
    seconds = sum(costs.get(row, 0) * runs for row, runs in _missing(plans).items())
    return number(seconds / 3600, None)


def _needed(plan: SeedPlan, costs: Mapping[str, float]) -> tuple[str, str]:
    is_hopeless = plan.seeds is None
    return (NEVER, NO_VALUE) if is_hopeless else (str(plan.seeds), _hours([plan], costs))


def _total(plans: Sequence[SeedPlan], costs: Mapping[str, float]) -> str:
    """What it costs to decide all comparisons that can be."""
    if not plans:
        return "No comparison with runs is undecided."
    hopeless = sum(plan.seeds is None for plan in plans)
    rest = f" {counted(hopeless, 'comparison')} would need {NEVER} seeds." if hopeless else ""
    return (
        f"{counted(len(plans), 'comparison')} undecided. Deciding {len(plans) - hopeless} takes "
        f"{counted(sum(_missing(plans).values()), 'more run')}, {_hours(plans, costs)} hours in "
        f"all.{rest}"
    )


def reproduce(name: str, overrides: list[str]) -> str:
    """Execute the missing runs, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale, or with changed settings, NAME has a suffix. With `power=P` nothing is
    executed or written: see `power_page`. With `layout=paper` also writes NAME.paper.*, and returns
    that table.
    """
    own, others = split_settings("reproduce", ReproduceCommand, overrides)
    target = target_of(name, [*others, *([f"scale={own.scale}"] if own.scale else [])])
    paper = _is_for_paper(target, own)
    if own.power:
        return power_page(target, own.power)
    if (compute := target.table.compute) is not None:
        return _compute(target, compute)
    if target.table.figure:
        check_figure(target.table)
    else:
        _ = target.edition  # refuses an invalid table before its runs
    runs = plan_runs(target)
    check_writable(target.config.results / TABLES)
    records, unavailable = execute(runs)
    if stale := sum(map(is_stale, records)):
        print_message(
            f"{stale} of {len(records)} records were produced by a different version of the code; "
            "rerun them with again=stale."
        )
    missing = not_run(runs, unavailable)
    files = render(target, records, missing)
    if paper:
        columns = [column for column in own.columns if column]
        files |= for_paper(target, records, missing, columns)
    _write(target, files)
    log_table(target.config.trackers, target.stem, files, target.config.tracking)
    return files["paper.md" if paper else "md"].decode()


def _is_for_paper(target: Target, own: ReproduceCommand) -> bool:
    """Whether the table is to be laid out for a paper; UserError where there is none to lay out."""
    if own.columns and not own.layout:
        raise UserError(f"columns={','.join(own.columns)} needs layout=paper.")
    if own.layout and not target.table.columns:
        raise UserError(f"{target.name} is not a table of runs, so it has no layout=paper.")
    return bool(own.layout)


def _compute(target: Target, node: dict) -> str:
    compute = function("table", node)
    check_writable(target.config.results / TABLES)
    files = compute(target)
    _write(target, files)
    return files["md"].decode()


def _write(target: Target, files: Mapping[str, bytes]) -> None:
    stem = target.config.results / TABLES / target.stem
    for suffix, content in files.items():
        write_atomically(stem.with_name(f"{stem.name}.{suffix}"), content)
    print_message(f"written: {stem}.{{{','.join(files)}}}")
