"""Rerun a table of a paper: what is missing of its runs, then the table beside the printed one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.config.buildable import function
from dpbench.errors import Unavailable, UserError
from dpbench.execution.prepare import trackers_of
from dpbench.execution.run import tracking_folder
from dpbench.execution.sweep import Sweep, planned, report, run_missing
from dpbench.files import check_writable, write_atomically
from dpbench.records.reading import load
from dpbench.reproduce.figure import check_figure
from dpbench.reproduce.render import render, spec_of
from dpbench.reproduce.target import Target, target
from dpbench.tables import Statement, row_name
from dpbench.training.plan import Run, plan, privacy_statement
from dpbench.training.tracking import keep_table
from dpbench.validate import one_of


def reproduce(name: str, overrides: list[str]) -> str:
    """Run what is missing, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale than the paper's, or with changes, NAME says so. A figure of times is measured
    anew, by the benchmark that it names.
    """
    wanted = target(name, overrides)
    folder = Path(wanted.config["results_dir"])
    if "bench" in wanted.table:
        return _time(wanted, folder)
    if "compute" in wanted.table:
        return _compute(wanted, folder)
    if "figure" in wanted.table:
        check_figure(wanted.table)
    else:
        spec_of(wanted)
    cells = _cells(wanted)
    check_writable(folder / "tables")
    lacking = _carry_out(cells)
    records = [record for path in cells.sweep.runs if (record := load(path)) is not None]
    if lacking and not records:
        raise Unavailable(f"{name}: {next(iter(lacking.values()))}")
    reasons = {cells.rows[path]: reason for path, reason in lacking.items()}
    impossible = {**cells.impossible, **reasons}
    files = render(wanted, records, impossible, _planned_privacy(cells, lacking))
    _write(wanted, files)
    trackers = trackers_of(wanted.config)
    keep_table(trackers, wanted.stem, files, tracking_folder(wanted.config))
    return files["md"].decode()


@dataclass(frozen=True)
class Cells:
    """The runs of a target. rows: of the table, by the path of a run's record; impossible: why
    other rows have no runs at all."""

    sweep: Sweep
    rows: Mapping[Path, str]
    impossible: Mapping[str, str]


def _cells(wanted: Target) -> Cells:
    rows = {
        tuple(overrides): row_name(condition.label, method)
        for condition in wanted.conditions
        for method in wanted.table["methods"]
        for overrides in wanted.cells_of(condition, method)
    }
    sweep = planned(wanted.stem, map(list, rows))
    for run in sweep.built.values():
        for group in wanted.table.get("groups", ()):
            one_of("table.groups", str(group), run.dataset.groups)
    return Cells(
        replace(sweep, config=wanted.config, impossible=()),
        {path: rows[tuple(overrides)] for path, overrides in sweep.runs.items()},
        {rows[tuple(overrides)]: str(reason) for overrides, reason in sweep.impossible},
    )


def _carry_out(cells: Cells) -> dict[Path, str]:
    """Make what is missing, but for runs that lack data or weights: those, and why.

    UserError where runs failed for any other reason.
    """
    lacking = _without_weights(cells.sweep)
    ready = {path: run for path, run in cells.sweep.runs.items() if path not in lacking}
    sweep = replace(cells.sweep, runs=ready)
    failed = run_missing(sweep)
    lacking |= {path: failure.reason for path, failure in failed.items() if failure.unavailable}
    failed = {path: failure for path, failure in failed.items() if not failure.unavailable}
    if failures := report(sweep, failed):
        raise UserError(f"{sweep.name} lacks runs: {failures}")
    return lacking


def _without_weights(sweep: Sweep) -> dict[Path, str]:
    """Why pre-trained weights that runs need are not available: known before any data."""
    reasons: dict[tuple, str | None] = {}
    lacking = {}
    for path in sweep.missing():
        run = sweep.built[path]
        if not getattr(run.model, "pretrained", False):
            continue
        what = (run.model, run.dataset.shape, run.dataset.classes)
        if what not in reasons:
            reasons[what] = _why_not(run)
        if reason := reasons[what]:
            lacking[path] = reason
    return lacking


def _why_not(run: Run) -> str | None:
    try:
        run.model.build(run.dataset.shape, run.dataset.classes)
    except Unavailable as reason:
        return str(reason)
    return None


def _planned_privacy(cells: Cells, lacking: Mapping[Path, str]) -> dict[str, Statement]:
    """By row, what would hold of the epsilon of runs that could not be made."""
    said: dict[str, Statement] = {}
    for path in lacking:
        if cells.rows[path] not in said:
            said[cells.rows[path]] = _statement(cells.sweep.built[path])
    return said


def _statement(run: Run) -> Statement:
    return privacy_statement(run, plan(run))


def _time(wanted: Target, folder: Path) -> str:
    """Measure with `dpbench bench`, which prints its table; where it put table and picture."""
    from dpbench.bench.command import bench

    out = folder / "tables" / wanted.stem
    settings = {**wanted.table["bench"], "device": wanted.config["device"], "out": out}
    bench([f"{key}={value}" for key, value in settings.items()])
    return f"{wanted.title}: table, numbers and picture are in {out}."


def _compute(wanted: Target, folder: Path) -> str:
    """What takes no private training: it follows from settings alone, or is measured at once."""
    compute = function("table", wanted.table["compute"])
    check_writable(folder / "tables")
    files = compute(wanted)
    _write(wanted, files)
    return files["md"].decode()


def _write(wanted: Target, files: Mapping[str, bytes]) -> None:
    for suffix, content in files.items():
        write_atomically(
            Path(wanted.config["results_dir"]) / "tables" / f"{wanted.stem}.{suffix}", content
        )
