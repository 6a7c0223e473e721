"""`dpbench reproduce TABLE`: executes the missing runs of a paper's table, then renders it.

Or, with power=P, says how many seeds would decide its comparisons, and the cost.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from dpbench.comparison.reproduce.figure import check_figure
from dpbench.comparison.reproduce.render import for_paper, judged_claims, render
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.tables.claims.comparisons import RowComparison
from dpbench.comparison.tables.claims.grids import PLACE
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import NO_VALUE, Grid, duration, number
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.privacy import NotRun
from dpbench.comparison.tables.verdict import UNDECIDED
from dpbench.learning.metrics.paired_t import LEVEL, MOST_SEEDS
from dpbench.runs.config.buildable import function
from dpbench.runs.config.commands import ReproduceCommand
from dpbench.runs.config.settings import split_settings
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.execution.sweep import Sweep, plan_sweep, report, run_missing
from dpbench.runs.records.code import stale_among
from dpbench.runs.records.collect import RECORDS, TableRecords, records_in
from dpbench.runs.records.folder import RUNS, TABLES
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.runs.training.tracking import log_table
from dpbench.system.errors import Unavailable, UserError, counted, print_message
from dpbench.system.files import check_writable, files_in, write_atomically
from dpbench.system.grouping import grouped
from dpbench.system.paths import PACKAGE
from dpbench.system.validate import one_of

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
    """The undecided comparisons of a table as Markdown, each with the seeds that decide it with
    that probability, by the measured gaps and spreads, and what the missing runs cost.

    Raises UserError for a table without claims, and where none of its runs has a record.
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
    if not plans:
        return "No comparison with runs is undecided."
    hopeless = sum(plan.seeds is None for plan in plans)
    rest = f" {counted(hopeless, 'comparison')} would need {NEVER} seeds." if hopeless else ""
    return (
        f"{counted(len(plans), 'comparison')} undecided. Deciding {len(plans) - hopeless} takes "
        f"{counted(sum(_missing(plans).values()), 'more run')}, {_hours(plans, costs)} hours in "
        f"all.{rest}"
    )


@dataclass(frozen=True)
class TargetRuns:
    """The runs of a target. rows: the names of their rows, by the path of the record; impossible:
    why other rows have no runs, by their names."""

    sweep: Sweep
    rows: Mapping[Path, str]
    impossible: Mapping[str, str]


def table_records(target: Target) -> TableRecords:
    """The records in the files of all tables of the results folder, in the target's own first."""
    own, others = _record_files(target.config.results, target.stem)
    return TableRecords([own, *others])


def plan_runs(target: Target) -> TargetRuns:
    """The planned runs of a target; UserError for invalid ones, and for unknown groups."""
    rows = {
        tuple(overrides): row_name(condition.label, method)
        for condition in target.conditions
        for method in target.table.ready
        for overrides in target.cells_of(condition, method)
    }
    sweep = plan_sweep(target.stem, rows, table_records(target).get)
    for run in sweep.built.values():
        for group in target.table.groups:
            one_of("table.groups", str(group), run.dataset.groups)
    return TargetRuns(
        replace(sweep, config=target.config, impossible=()),
        {path: rows[config.overrides] for path, config in sweep.runs.items()},
        {rows[config.overrides]: str(reason) for config, reason in sweep.impossible},
    )


def execute(runs: TargetRuns) -> tuple[list[Record], dict[Path, str]]:
    """Execute the missing runs, and say before what is missing; returns the records of all, and
    why, by path, data or weights of others are unavailable.

    A run whose record is in the file of a table is not missing. Raises UserError if runs failed for
    any other reason; before they start, if the file of records beside the table has some that would
    be lost; and Unavailable if none could be run, or one that has a record not again.
    """
    sweep = runs.sweep
    unfinished = sweep.unfinished()
    _check_kept(sweep, unfinished)
    print_message(_outlook(runs, unfinished))
    unavailable = _execute(sweep)
    records = [record for config in sweep.runs.values() if (record := config.record) is not None]
    if unavailable and (not records or any(sweep.runs[path].record for path in unavailable)):
        raise Unavailable(f"{sweep.name}: {next(iter(unavailable.values()))}")
    return records, unavailable


def _outlook(runs: TargetRuns, unfinished: Collection[Path]) -> str:
    sweep = runs.sweep
    records = {path: record for path, run in sweep.runs.items() if (record := run.record)}
    committed = sum(not path.exists() for path in records)
    there = f"{sweep.name}: {len(records)} of {counted(len(sweep.runs), 'run')} are there"
    if committed:
        there += f" ({committed} in {sweep.folder / TABLES})"
    if not unfinished:
        return f"{there}; nothing to train."
    there += f"; {len(unfinished)} to train"
    costs = mean_seconds((runs.rows[path], record) for path, record in records.items())
    if costs:
        mean = fmean(costs.values())  # for rows without records
        text = duration(sum(costs.get(runs.rows[path], mean) for path in unfinished))
        there += f", about {text} one after another (by the seconds of those that are there)"
    return f"{there}{_elsewhere(sweep, unfinished)}."


def _elsewhere(sweep: Sweep, unfinished: Iterable[Path]) -> str:
    """How many of the missing runs have a record in the checkout's results, where these are not in
    use: they are not taken, as whoever names a folder of their own may want to compare."""
    committed = PACKAGE.parent / "results"
    if sweep.config["again"] or committed.resolve() == sweep.folder.resolve():
        return ""
    name = sweep.name.partition("-")[0]
    stored = TableRecords(files_in(committed / TABLES, f"{name}*.{RECORDS}"))
    number = sum(stored.get(path.stem) is not None for path in unfinished)
    way = shlex.quote(f"results_dir={committed}")
    return f"; {committed / TABLES} has {number} of them, which {way} takes" if number else ""


def mean_seconds(records: Iterable[tuple[str, Record]]) -> dict[str, float]:
    """The mean seconds of a run of each row, by records given with the names of their rows; rows
    whose records do not say are left out."""
    seconds = grouped(
        (row, taken) for row, record in records if (taken := record.provenance.get("seconds"))
    )
    return {row: fmean(taken) for row, taken in seconds.items()}


def _execute(sweep: Sweep) -> dict[Path, str]:
    unavailable = _without_weights(sweep)
    ready = {path: run for path, run in sweep.runs.items() if path not in unavailable}
    sweep = replace(sweep, runs=ready)
    failed = run_missing(sweep)
    unavailable |= {path: each.reason for path, each in failed.items() if each.unavailable}
    if failures := report(sweep, {p: each for p, each in failed.items() if not each.unavailable}):
        raise UserError(f"{sweep.name} lacks runs: {failures}")
    return unavailable


def _without_weights(sweep: Sweep) -> dict[Path, str]:
    """Why pre-trained weights are unavailable, by path of the run; found before data is read."""
    missing = {path: sweep.built[path] for path, run in sweep.runs.items() if run.is_missing()}
    # Their settings may be lists, which have no hash.
    of_models = grouped(
        (repr((run.model, run.dataset.shape, run.dataset.classes)), path)
        for path, run in missing.items()
        if getattr(run.model, "pretrained", False)
    )
    unavailable: dict[Path, str] = {}
    for first, *others in of_models.values():
        run = missing[first]
        try:
            run.model.build(run.dataset.shape, run.dataset.classes)
        except Unavailable as reason:
            unavailable |= dict.fromkeys((first, *others), str(reason))
    return unavailable


def not_run(runs: TargetRuns, unavailable: Mapping[Path, str]) -> NotRun:
    """The rows without runs: those not possible, and those without data or weights, by path."""
    reasons = {runs.rows[path]: reason for path, reason in unavailable.items()}
    built = grouped((runs.rows[path], runs.sweep.built[path]) for path in unavailable)
    statements = {row: privacy_statement(same[0], plan(same[0])) for row, same in built.items()}
    return NotRun({**runs.impossible, **reasons}, statements)


def _check_kept(sweep: Sweep, unfinished: Collection[Path]) -> None:
    """UserError if the table's file has records that would be lost: unreadable ones, and those of
    runs that are neither in another file, nor of the table and not to be trained with new noise."""
    own, others = _record_files(sweep.folder, sweep.name)
    kept = {path.stem for path in files_in(sweep.folder / RUNS, "*.json")} | {
        path.stem
        for path, run in sweep.built.items()
        if path not in unfinished or run.noise != "secure"
    }
    elsewhere = TableRecords(others)
    stored = records_in(own) if own.exists() else ()
    lost = [
        entry
        for entry in stored
        if not isinstance(entry, Record)
        or (entry.digest not in kept and elsewhere.get(entry.digest) is None)
    ]
    if lost:
        raise UserError(
            f"{own} has {counted(len(lost), 'record')} in no other file, which would be lost: set "
            "results_dir to another folder, or move the files of that table away."
        )


def _record_files(folder: Path, stem: str) -> tuple[Path, list[Path]]:
    own = folder / TABLES / f"{stem}.{RECORDS}"
    return own, [path for path in files_in(own.parent, f"*.{RECORDS}") if path != own]


def reproduce(name: str, overrides: list[str]) -> str:
    """Execute the missing runs, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale, or with changed settings, NAME has a suffix. power=P only gives `power_page`;
    layout=paper also writes NAME.paper.*, and returns that table.
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
        target.check()
    runs = plan_runs(target)
    check_writable(target.config.results / TABLES)
    records, unavailable = execute(runs)
    if stale := stale_among(records):
        print_message(stale)
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
