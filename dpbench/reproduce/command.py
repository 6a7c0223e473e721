"""`dpbench reproduce TABLE`: executes the missing runs of a paper's table, then renders it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.config.buildable import function
from dpbench.errors import Unavailable, UserError, print_message
from dpbench.execution.configuration import trackers_of
from dpbench.execution.run import tracking_folder
from dpbench.execution.sweep import Sweep, plan_sweep, report, run_missing
from dpbench.files import check_writable, write_atomically
from dpbench.records.code import is_stale
from dpbench.records.collect import RECORDS, StoredRecord, records_in
from dpbench.records.reading import load
from dpbench.reproduce.figure import check_figure
from dpbench.reproduce.render import render, spec_of
from dpbench.reproduce.target import Target, target_of
from dpbench.tables.conditions import row_name
from dpbench.tables.counts import counted
from dpbench.tables.privacy import Statement
from dpbench.training.plan import Run, plan, privacy_statement
from dpbench.training.tracking import log_table
from dpbench.validate import one_of


def reproduce(name: str, overrides: list[str]) -> str:
    """Execute the missing runs, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale, or with changed settings, NAME has a suffix. Figures of times are always
    measured again, by `dpbench bench`.
    """
    target = target_of(name, overrides)
    folder = Path(target.config["results_dir"])
    if "bench" in target.table:
        return _measure_times(target, folder)
    if "compute" in target.table:
        return _compute(target, folder)
    if "figure" in target.table:
        check_figure(target.table)
    else:
        spec_of(target)
    runs = plan_runs(target)
    check_writable(folder / "tables")
    found = {path.stem for path in (folder / "runs").glob("*.json")}
    repeated = {path.stem for path, run in runs.sweep.built.items() if run.noise != "secure"}
    _check_kept(folder, target.stem, found | repeated)
    unavailable = _execute(runs)
    records = [record for path in runs.sweep.runs if (record := load(path)) is not None]
    _check_kept(folder, target.stem, found | {record.digest for record in records})
    if unavailable and not records:
        raise Unavailable(f"{name}: {next(iter(unavailable.values()))}")
    if stale := sum(map(is_stale, records)):
        print_message(
            f"{stale} of {len(records)} records were produced by a different version of the code; "
            "rerun them with again=stale."
        )
    reasons = {runs.rows[path]: reason for path, reason in unavailable.items()}
    impossible = {**runs.impossible, **reasons}
    files = render(target, records, impossible, _planned_privacy(runs, unavailable))
    _write(target, files)
    trackers = trackers_of(target.config)
    log_table(trackers, target.stem, files, tracking_folder(target.config))
    return files["md"].decode()


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
        for method in target.table["methods"]
        for overrides in target.cells_of(condition, method)
    }
    sweep = plan_sweep(target.stem, map(list, rows))
    for run in sweep.built.values():
        for group in target.table.get("groups", ()):
            one_of("table.groups", str(group), run.dataset.groups)
    return TargetRuns(
        replace(sweep, config=target.config, impossible=()),
        {path: rows[tuple(overrides)] for path, overrides in sweep.runs.items()},
        {rows[tuple(overrides)]: str(reason) for overrides, reason in sweep.impossible},
    )


def _check_kept(folder: Path, stem: str, kept: Collection[str]) -> None:
    """UserError if the table's file has records that would be lost: unreadable ones, and those of
    none of the digests in `kept`."""
    path = folder / "tables" / f"{stem}.{RECORDS}"
    stored = records_in(path) if path.exists() else ()
    lost = [e for e in stored if not isinstance(e, StoredRecord) or e.digest not in kept]
    if lost:
        raise UserError(
            f"{path} has {counted(len(lost), 'record')} in no other file, which would be lost: set "
            "results_dir to another folder, or move the files of that table away."
        )


def _execute(runs: TargetRuns) -> dict[Path, str]:
    """Execute the missing runs; returns why, by path, where data or weights are unavailable.

    Raises UserError if runs failed for any other reason.
    """
    unavailable = _without_weights(runs.sweep)
    ready = {path: run for path, run in runs.sweep.runs.items() if path not in unavailable}
    sweep = replace(runs.sweep, runs=ready)
    failed = run_missing(sweep)
    unavailable |= {path: failure.reason for path, failure in failed.items() if failure.unavailable}
    failed = {path: failure for path, failure in failed.items() if not failure.unavailable}
    if failures := report(sweep, failed):
        raise UserError(f"{sweep.name} lacks runs: {failures}")
    return unavailable


def _without_weights(sweep: Sweep) -> dict[Path, str]:
    """Why pre-trained weights are unavailable, by path of the run; found before data is read."""
    reasons: dict[tuple, str | None] = {}
    unavailable = {}
    for path in sweep.missing():
        run = sweep.built[path]
        if not getattr(run.model, "pretrained", False):
            continue
        model = (run.model, run.dataset.shape, run.dataset.classes)
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


def _planned_privacy(runs: TargetRuns, unavailable: Mapping[Path, str]) -> dict[str, Statement]:
    """The privacy statements, by row, that runs without data or weights would have."""
    statements: dict[str, Statement] = {}
    for path in unavailable:
        if runs.rows[path] not in statements:
            run = runs.sweep.built[path]
            statements[runs.rows[path]] = privacy_statement(run, plan(run))
    return statements


def _measure_times(target: Target, folder: Path) -> str:
    """Measure by `dpbench bench`, which prints its table; returns a sentence with the folder."""
    from dpbench.bench.command import bench

    out = folder / "tables" / target.stem
    settings = {**target.table["bench"], "device": target.config["device"], "out": out}
    bench([f"{key}={value}" for key, value in settings.items()])
    return f"{target.title}: table, numbers and picture are in {out}."


def _compute(target: Target, folder: Path) -> str:
    """A table that needs no private training, computed by the function that its YAML names."""
    compute = function("table", target.table["compute"])
    check_writable(folder / "tables")
    files = compute(target)
    _write(target, files)
    return files["md"].decode()


def _write(target: Target, files: Mapping[str, bytes]) -> None:
    stem = Path(target.config["results_dir"]) / "tables" / target.stem
    for suffix, content in files.items():
        write_atomically(stem.with_name(f"{stem.name}.{suffix}"), content)
    print_message(f"written: {stem}.{{{','.join(files)}}}")
