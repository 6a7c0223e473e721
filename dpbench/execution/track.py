"""`dpbench track tracker=NAME [KEY=VALUE ...]`: finished records, sent to trackers afterwards."""

from dpbench.config.settings import is_scientific, key_of
from dpbench.execution.run_config import run_config
from dpbench.records.collect import readable_records
from dpbench.records.record import Record
from dpbench.records.sweep_list import sweeps_of
from dpbench.records.trackers import RunInfo, Tracker, run_info
from dpbench.system.errors import UserError
from dpbench.system.progress import counting
from dpbench.tables.counts import counted
from dpbench.tables.sweep.cells import filter_records
from dpbench.training.tracking import Tracking


def track(arguments: list[str]) -> str:
    """Log the records of a results folder as their runs would have; returns a sentence on how many.

    Scientific settings among the arguments select records, as in `dpbench table`. What a tracker
    has of a run is not logged again, unless again=true. Raises UserError without a tracker, without
    a record, and for a setting or value of none.
    """
    config = run_config([a for a in arguments if not is_scientific(a)])
    if not (trackers := config.trackers):
        raise UserError("track needs a tracker: set tracker=wandb, mlflow, tensorboard or csv.")
    filters = {key_of(a): a.partition("=")[2] for a in arguments if is_scientific(a)}
    records = filter_records(readable_records(config.results), filters)
    logged = 0
    with counting("records", len(records)) as count:
        for record in records:
            sweeps = sweeps_of(config.results, record.digest)
            info = run_info(record.config, config.tracking, sweeps=sweeps)
            missing = trackers if config["again"] is True else _missing(trackers, info)
            logged += _log(record, missing, info)
            count()
    before = len(records) - logged
    said = f"{counted(logged, 'run')} logged"
    return f"{said}, and {before} before, which again=true repeats." if before else f"{said}."


def _missing(trackers: dict[str, Tracker], info: RunInfo) -> dict[str, Tracker]:
    return {name: tracker for name, tracker in trackers.items() if not tracker.has(info)}


def _log(record: Record, trackers: dict[str, Tracker], info: RunInfo) -> bool:
    """Log a record; returns whether there was a tracker to log it to."""
    if trackers:
        Tracking(trackers, info).finish(record)
    return bool(trackers)
