"""From overrides to a record; a finished run is not repeated."""

from pathlib import Path

import torch

from dpbench.config.settings import key_of
from dpbench.execution.prepare import data_folder, run_of, trackers_of
from dpbench.files import check_writable, remove_parts
from dpbench.records.digest import scientific
from dpbench.records.reading import load, set_aside_invalid
from dpbench.records.record import Record, record_path
from dpbench.records.trackers import About
from dpbench.training.checkpoints import Checkpoints, locked_checkpoints
from dpbench.training.interrupts import orderly
from dpbench.training.plan import Run, plan
from dpbench.training.tracking import Tracking
from dpbench.training.trainer import fit


def load_or_run(overrides: list[str], quiet: bool = False, wait: bool = True) -> Path:
    """The path of a run's record; without one, or with again=true, the run is carried out first.

    An interrupted run resumes from its last checkpoint, with again=true it starts over. A run of
    another process is waited for; if `wait` is false, Busy is raised instead.
    """
    config, run = run_of(overrides)
    path = record_path(Path(config["results_dir"]), config)
    own = checkpoint_folder(path)
    missing = config["again"] or load(path) is None
    if missing:
        plan(run)  # which refuses before any work; the accountants remember it for `fit`
    if missing or own.exists():
        check_writable(path.parent)
        with orderly(), locked_checkpoints(own, config["checkpoint_minutes"], wait) as kept:
            remove_parts(path.parent, path.name)
            tracking = _tracking(config, run, path, _table(overrides))
            _run_or_finish_tracking(config, run, path, kept, tracking, quiet)
            kept.clear()
    return path


def checkpoint_folder(record: Path) -> Path:
    """The checkpoint folder of the run with that record; removed when the run is complete."""
    return record.parents[1] / "checkpoints" / record.stem


def _run_or_finish_tracking(
    config: dict, run: Run, path: Path, kept: Checkpoints, tracking: Tracking, quiet: bool
) -> None:
    """Carry out the run, unless its record exists by now, and finish its trackers.

    They are still open where the earlier process was killed between record and trackers; where
    another process was waited for, there is nothing left to do.
    """
    record = None if config["again"] else load(path)
    if record is None:
        record = _fit_and_save(config, run, path, kept, tracking, quiet)
    elif not kept.abandoned:
        return
    tracking.finish(record)


def _fit_and_save(
    config: dict, run: Run, path: Path, kept: Checkpoints, tracking: Tracking, quiet: bool
) -> Record:
    if config["again"]:
        kept.clear()
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    set_aside_invalid(path)
    record = fit(run, data_folder(config), quiet, kept, tracking)
    record.save(path.parents[1])
    return record


def _tracking(config: dict, run: Run, path: Path, table: str) -> Tracking:
    group = "/".join([*([table] if table else []), config["choices"]["method"]])
    told = (path.stem, group, scientific(config), tracking_folder(config))
    return Tracking(trackers_of(config), run, lambda made: About(*told, made))


def tracking_folder(config: dict) -> Path:
    """Where all trackers have their files."""
    return Path(config["results_dir"]) / "tracking"


def _table(overrides: list[str]) -> str:
    """The table whose settings a run takes, or nothing."""
    return next((o.partition("=")[2] for o in overrides if key_of(o) == "table"), "")
