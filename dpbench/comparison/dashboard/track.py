"""`dpbench track tracker=NAME [KEY=VALUE ...]`: finished records, sent to trackers afterwards."""

from collections.abc import Callable, Mapping, Sequence

from dpbench.comparison.dashboard.command import report_of
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.sweep.cells import filter_records
from dpbench.runs.config.settings import is_scientific, key_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.collect import readable_records
from dpbench.runs.records.frames import frame
from dpbench.runs.records.record import Record
from dpbench.runs.records.sweep_list import sweeps_of
from dpbench.runs.records.trackers.tracker import run_info
from dpbench.runs.training.tracking import Tracking, log_table
from dpbench.system.errors import UserError, counted
from dpbench.system.progress import counting

COMPARISON = "comparison"
"""The name at the trackers of what compares the records."""


def track(arguments: list[str], on_failures: Callable[[int], None] = lambda number: None) -> str:
    """Log the records of a results folder as their runs would have; returns a sentence on how many.

    A table and the page of `dpbench report` follow. Scientific settings select records; what a
    tracker has is not logged again, unless again=true. on_failures: is told the number of records
    at which a tracker failed, if any. Raises UserError without a tracker, without a record, and for
    a setting or value of none.
    """
    config = run_config([a for a in arguments if not is_scientific(a)])
    if not (trackers := config.trackers):
        raise UserError(
            "track needs a tracker: set tracker=wandb, in another mode than disabled, or another "
            "of `dpbench list tracker`."
        )
    filters = {key_of(a): a.partition("=")[2] for a in arguments if is_scientific(a)}
    records = filter_records(readable_records(config.results), filters)
    logged, failed, repeat = 0, 0, config["again"] is True
    with counting("records", len(records)) as count:
        for record in records:
            sweeps = sweeps_of(config.results, record.digest)
            info = run_info(record.config, config.tracking, sweeps=sweeps)
            missing = {
                name: tracker
                for name, tracker in trackers.items()
                if repeat or not tracker.has(info)
            }
            if missing:
                succeeded = Tracking(missing, info).finish(record, pictures=False)
                logged, failed = logged + succeeded, failed + (not succeeded)
            count()
    if logged:
        log_table(trackers, COMPARISON, _comparison(records), config.tracking)
    before = len(records) - logged - failed
    done = f"{counted(logged, 'run')} logged"
    if failed:
        done = f"{done}, and {failed} not or in part, as a tracker failed"
        on_failures(failed)
    return f"{done}, and {before} before, which again=true repeats." if before else f"{done}."


def _comparison(records: Sequence[Record]) -> Mapping[str, bytes]:
    rows = frame(records)
    cells = tuple(tuple(map(str, row)) for row in rows.itertuples(index=False))
    return {
        "csv": rows.to_csv(index=False).encode(),
        "md": Page("", [Grid("", (*rows.columns,), cells)]).markdown.encode(),
        "html": report_of(records).encode(),
    }
