"""The configuration of a run, as far as it can be checked without building the run's parts.

Nothing that takes long to import is imported here.
"""

import os
import shlex
from pathlib import Path

from dpbench.config import buildable
from dpbench.config.compose import compose, options
from dpbench.config.settings import check_compute, check_numbers
from dpbench.data.fetch.folder import default_folder
from dpbench.execution.launcher import Launcher
from dpbench.records.code import is_stale
from dpbench.records.folder import CHECKPOINTS
from dpbench.records.reading import load
from dpbench.records.record import Record, record_path
from dpbench.records.trackers import Tracker
from dpbench.records.trained_model import model_path
from dpbench.system.errors import UserError
from dpbench.system.validate import boolean, integer, one_of, path_of, positive, quoted, typed

STALE = "stale"
"""The value of `again` that repeats runs whose record was made by other code."""

MAX_PER_CORE = 8
"""The most threads or processes of a command: more only wait for each other, or exhaust memory."""


def checked_config(overrides: list[str]) -> dict:
    """The configuration of overrides; UserError for unknown names, and for numbers, settings of
    execution, launchers or trackers that cannot be used.

    Most of these are not part of a run's name, so they are checked here even for a finished run.
    """
    config = compose(overrides)
    check_numbers(config)
    check_compute(config)
    one_of("engine", config["engine"].get("name"), options("engine"))
    check_execution(config)
    launcher_of(config)
    trackers_of(config)
    return config


def finished_record(overrides: list[str]) -> Path | None:
    """The path of a run's record if it exists and nothing is left to do; else None.

    Raises UserError for a launcher other than the local one, which a single run does not use.
    """
    config = checked_config(overrides)
    if (name := config["choices"]["launcher"]) != "local":
        raise UserError(
            f"launcher={name} launches the runs of a sweep, or a sweep of one: use dpbench run -m."
        )
    path = record_path(Path(config["results_dir"]), config)
    if checkpoint_folder(path).exists() or run_again(config, load(path)):
        return None
    return path


def why_not_tracked(overrides: list[str]) -> str:
    """Why trackers log nothing of a finished run, as a sentence; "" without trackers."""
    config = checked_config(overrides)
    names = [*trackers_of(config)]
    if not names:
        return ""
    tracker = f"tracker={names[0] if len(names) == 1 else '[' + ','.join(names) + ']'}"
    command = shlex.join(["dpbench", "track", tracker, f"results_dir={config['results_dir']}"])
    return (
        f"{tracker} logs a run while it trains, and this one was finished earlier: {command} logs "
        "the finished records."
    )


def run_again(config: dict, record: Record | None) -> bool:
    """Whether to execute a run that has this record, or none, or whose model is wanted.

    Raises UserError for the model of a finished run that cannot be trained a second time.
    """
    again = config["again"]
    if record is None or again is True or (again == STALE and is_stale(record)):
        return True
    if not config["save_model"]:
        return False
    folder, noise = Path(config["results_dir"]), config["noise"]
    wanted = not model_path(folder, record.digest, noise).exists()
    if wanted and noise == "secure":
        raise UserError(
            "save_model=true: this run is finished, its model was not saved, and with noise=secure "
            "no second one is equal: again=true trains another, at an epsilon of its own."
        )
    return wanted


def checkpoint_folder(record: Path) -> Path:
    """The folder of a run's checkpoints, which is removed when the run is complete."""
    return record.parents[1] / CHECKPOINTS / record.stem


def check_execution(config: dict) -> None:
    """UserError for settings of execution (jobs, threads, folders, checkpoints) out of range."""
    most = MAX_PER_CORE * (os.cpu_count() or 1)
    integer("jobs", config["jobs"], most=most)
    if config["threads"] is not None:
        integer("threads", config["threads"], most=most)
    if config["checkpoint_minutes"] is not None:
        positive("checkpoint_minutes", config["checkpoint_minutes"])
    if boolean("save_model", config["save_model"]):
        for group in ("temperature", "normalization"):  # what they measure is not in the model
            if config["choices"][group] == "private":
                raise UserError(
                    f"save_model=true keeps a model without its {group}, which is measured on "
                    f"private data: give another {group} than private."
                )
    if not isinstance(config["again"], bool) and config["again"] != STALE:
        raise UserError(f"again={quoted(config['again'])} must be true, false or {STALE}.")
    path_of("results_dir", config["results_dir"])
    if config["data_dir"] is not None:
        path_of("data_dir", config["data_dir"])


def launcher_of(config: dict) -> Launcher:
    """The launcher of a configuration."""
    return buildable.build_as(Launcher, "launcher", config["launcher"])


def trackers_of(config: dict) -> dict[str, Tracker]:
    """The trackers of a configuration by name."""
    trackers = buildable.build("tracker", config.get("tracker"))
    typed("tracker", trackers, dict[str, Tracker] | None)
    return trackers or {}


def data_folder(config: dict) -> Path:
    """The data folder of a configuration: `data_dir`, or the default one."""
    return Path(config["data_dir"]) if config["data_dir"] else default_folder()
