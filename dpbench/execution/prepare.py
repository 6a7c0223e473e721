"""From a plain configuration to the run, the launcher and the trackers that it describes."""

import functools
import os
from pathlib import Path
from typing import Any, get_type_hints

from dpbench.config import buildable
from dpbench.config.compose import compose, groups
from dpbench.config.settings import SETTINGS
from dpbench.data.derive.mislabelled import mislabelled
from dpbench.data.derive.validation import validated
from dpbench.data.fetch.download import default_folder
from dpbench.execution.launcher import Launcher
from dpbench.records.trackers import Tracker
from dpbench.training.plan import Plan, Run, plan
from dpbench.validate import boolean, integer, path_of, positive, typed

MAX_PER_CORE = 8
"""Threads or processes of a command: more only wait for each other, or exhaust memory."""


def prepare(overrides: list[str]) -> tuple[dict, Run, Plan]:
    """The configuration, the run and its plan; UserError for all that can be refused beforehand."""
    config, run = run_of(overrides)
    return config, run, plan(run)


def run_of(overrides: list[str]) -> tuple[dict, Run]:
    """The configuration and the run, without the plan: the accountants may take seconds."""
    config = compose(overrides)
    check_execution(config)
    launcher_of(config)
    trackers_of(config)
    return config, build(config)


def check_execution(config: dict) -> None:
    """UserError for settings of execution (jobs, threads, folders, checkpoints) out of range."""
    most = MAX_PER_CORE * (os.cpu_count() or 1)
    integer("jobs", config["jobs"], most=most)
    if config["threads"] is not None:
        integer("threads", config["threads"], most=most)
    if config["checkpoint_minutes"] is not None:
        positive("checkpoint_minutes", config["checkpoint_minutes"])
    boolean("again", config["again"])
    path_of("results_dir", config["results_dir"])
    if config["data_dir"] is not None:
        path_of("data_dir", config["data_dir"])


def build(config: dict) -> Run:
    """The run that a plain configuration describes; UserError for unsuitable values."""
    parts: dict[str, Any] = {key: config.get(key) for key in SETTINGS}
    for group in parts.keys() & {*groups()}:
        parts[group] = buildable.build(group, parts[group])
        typed(group, parts[group], _types_of_groups()[group])
    parts["engine"] = parts["engine"].get("name")
    dataset = validated(parts["dataset"], parts.pop("validation"))
    parts["dataset"] = mislabelled(dataset, parts.pop("mislabelled"))
    claimed_by = config.get("table", {}).get("claimed_by", "rdp")
    return Run(**parts, claimed_by=claimed_by, config=config)


@functools.cache
def _types_of_groups() -> dict[str, Any]:
    """The type that a run takes by group; an engine is passed by its name."""
    return get_type_hints(Run) | {"engine": dict[str, Any]}


def launcher_of(config: dict) -> Launcher:
    """The launcher of a configuration."""
    launcher = buildable.build("launcher", config["launcher"])
    typed("launcher", launcher, Launcher)
    return launcher


def trackers_of(config: dict) -> dict[str, Tracker]:
    """The trackers of a configuration by name."""
    trackers = buildable.build("tracker", config.get("tracker"))
    typed("tracker", trackers, dict[str, Tracker] | None)
    return trackers or {}


def data_folder(config: dict) -> Path:
    """The data folder of a configuration: `data_dir`, or the default one."""
    return Path(config["data_dir"]) if config["data_dir"] else default_folder()
