"""The runs of a target: planned, executed, and their records kept from being overwritten."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.counts import counted
from dpbench.comparison.tables.not_run import NotRun
from dpbench.privacy.statement import Statement
from dpbench.runs.execution.sweep import Sweep, plan_sweep, report, run_missing
from dpbench.runs.records.collect import RECORDS, StoredRecord, records_in
from dpbench.runs.records.folder import RUNS, TABLES
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.runs.training.run import Run
from dpbench.system.errors import Unavailable, UserError
from dpbench.system.files import files_in
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


def plan_runs(target: Target) -> TargetRuns:
    """The planned runs of a target; UserError for invalid ones, and for unknown groups."""
    rows = {
        tuple(overrides): row_name(condition.label, method)
        for condition in target.conditions
        for method in target.table.ready
        for overrides in target.cells_of(condition, method)
    }
    sweep = plan_sweep(target.stem, rows)
    for run in sweep.built.values():
        for group in target.table.groups:
            one_of("table.groups", str(group), run.dataset.groups)
    return TargetRuns(
        replace(sweep, config=target.config, impossible=()),
        {path: rows[config.overrides] for path, config in sweep.runs.items()},
        {rows[config.overrides]: str(reason) for config, reason in sweep.impossible},
    )


def execute(runs: TargetRuns) -> tuple[list[Record], dict[Path, str]]:
    """Execute the missing runs; returns the records of all, and why, by path, data or weights of
    others are unavailable.

    Raises UserError if runs failed for any other reason; before they start, if the file of records
    beside the table has some that would be lost; and Unavailable if none could be run.
    """
    sweep = runs.sweep
    found = {path.stem for path in files_in(sweep.folder / RUNS, "*.json")}
    repeated = {path.stem for path, run in sweep.built.items() if run.noise != "secure"}
    _check_kept(sweep, found | repeated)
    unavailable = _execute(sweep)
    records = [record for path in sweep.runs if (record := load(path)) is not None]
    _check_kept(sweep, found | {record.digest for record in records})
    if unavailable and not records:
        raise Unavailable(f"{sweep.name}: {next(iter(unavailable.values()))}")
    return records, unavailable


def _execute(sweep: Sweep) -> dict[Path, str]:
    unavailable = _without_weights(sweep)
    ready = {path: run for path, run in sweep.runs.items() if path not in unavailable}
    sweep = replace(sweep, runs=ready)
    failed = run_missing(sweep)
    unavailable |= {path: failure.reason for path, failure in failed.items() if failure.unavailable}
    failed = {path: failure for path, failure in failed.items() if not failure.unavailable}
    if failures := report(sweep, failed):
        raise UserError(f"{sweep.name} lacks runs: {failures}")
    return unavailable


def _without_weights(sweep: Sweep) -> dict[Path, str]:
    """Why pre-trained weights are unavailable, by path of the run; found before data is read."""
    reasons: dict[str, str | None] = {}
    unavailable = {}
    for path, config in sweep.runs.items():
        run = sweep.built[path]
        if not getattr(run.model, "pretrained", False) or not config.is_missing():
            continue
        # Its settings may be lists, which have no hash.
        model = repr((run.model, run.dataset.shape, run.dataset.classes))
        if model not in reasons:
            reasons[model] = _why_unavailable(run)
        if reason := reasons[model]:
            unavailable[path] = reason
    return unavailable


def _why_unavailable(run: Run) -> str | None:
    try:
        run.model.build(run.dataset.shape, run.dataset.classes)
    except Unavailable as reason:
        return str(reason)
    return None


def not_run(runs: TargetRuns, unavailable: Mapping[Path, str]) -> NotRun:
    """The rows without runs: those not possible, and those without data or weights, by path."""
    reasons = {runs.rows[path]: reason for path, reason in unavailable.items()}
    statements: dict[str, Statement] = {}
    for path in unavailable:
        if runs.rows[path] not in statements:
            run = runs.sweep.built[path]
            statements[runs.rows[path]] = privacy_statement(run, plan(run))
    return NotRun({**runs.impossible, **reasons}, statements)


def _check_kept(sweep: Sweep, kept: Collection[str]) -> None:
    """UserError if the table's file has records that would be lost: unreadable ones, and those of
    none of the digests in `kept`."""
    path = sweep.folder / TABLES / f"{sweep.name}.{RECORDS}"
    stored = records_in(path) if path.exists() else ()
    lost = [e for e in stored if not isinstance(e, StoredRecord) or e.digest not in kept]
    if lost:
        raise UserError(
            f"{path} has {counted(len(lost), 'record')} in no other file, which would be lost: set "
            "results_dir to another folder, or move the files of that table away."
        )
