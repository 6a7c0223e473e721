"""`dpbench track tracker=NAME [results_dir=...]`: finished records, sent to trackers afterwards."""

from pathlib import Path

from dpbench.errors import UserError
from dpbench.execution.configuration import checked_config, trackers_of
from dpbench.execution.run import tracking_folder
from dpbench.records.collect import readable_records
from dpbench.records.trackers import run_info
from dpbench.training.tracking import Tracking


def track(overrides: list[str]) -> int:
    """Log every record of a results folder, as its run would have; returns the number of records.

    Raises UserError without a tracker, and if there is no record.
    """
    config = checked_config(overrides)
    if not trackers_of(config):
        raise UserError("track needs a tracker: set tracker=wandb, tensorboard or csv.")
    records = readable_records(Path(config["results_dir"]))
    for record in records:
        info = run_info(record.config, tracking_folder(config))
        Tracking(trackers_of(config), info).finish(record)
    return len(records)
