"""The runs of a target: planned, executed, and their records kept from being overwritten."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import counted, duration
from dpbench.comparison.tables.privacy import NotRun
from dpbench.runs.execution.sweep import Sweep, plan_sweep, report, run_missing
from dpbench.runs.records.collect import RECORDS, StoredRecord, TableRecords, records_in
from dpbench.runs.records.folder import RUNS, TABLES
from dpbench.runs.records.record import Record
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.system.errors import Unavailable, UserError, print_message
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped
from dpbench.system.validate import one_of


@dataclass(frozen=True)
class TargetRuns:
    """The runs of a target.

    rows: the names of their rows, by the path of the record; impossible: why other rows have no
    runs, by their names.
    """

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
    if not costs:
        return f"{there}."
    mean = fmean(costs.values())  # for rows without records
    text = duration(sum(costs.get(runs.rows[path], mean) for path in unfinished))
    return f"{there}, about {text} one after another (by the seconds of those that are there)."


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
    sweep, broken = replace(sweep, runs=ready), {}
    for path, failure in run_missing(sweep).items():
        if failure.unavailable:
            unavailable[path] = failure.reason
        else:
            broken[path] = failure
    if failures := report(sweep, broken):
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
        if not isinstance(entry, StoredRecord)
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
