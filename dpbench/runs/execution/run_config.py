"""The configuration of a run, composed and checked once; behind this door no overrides are read.
Nothing that takes long to import is imported here."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpbench.runs.config import buildable
from dpbench.runs.config.compose import CUSTOM, compose
from dpbench.runs.config.search_path import options
from dpbench.runs.config.settings import check_compute, check_numbers, leaves
from dpbench.runs.execution.launcher import Launcher
from dpbench.runs.records.code import is_stale
from dpbench.runs.records.digest import digest
from dpbench.runs.records.folder import CHECKPOINTS, RUNS, TRACKING
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import Tracker
from dpbench.runs.records.trained_model import model_path
from dpbench.system.errors import UserError
from dpbench.system.files import refuse_folders
from dpbench.system.paths import data_folder
from dpbench.system.validate import boolean, fits, integer, one_of, path_of, positive, quoted, typed

STALE = "stale"
"""The value of `again` that repeats runs whose record was made by other code."""

MAX_PER_CORE = 8
"""The most threads or processes of a command: more only wait for each other, or exhaust memory."""


@dataclass(frozen=True)
class RunConfig:
    """The configuration of one run.

    overrides: what it was composed of, by which messages name the run. plain: its settings by
    group, and in `choices` the option chosen in each. committed: the run's record in the file of a
    table, which counts where the run has no file of its own.
    """

    overrides: tuple[str, ...]
    plain: dict[str, Any]
    committed: Record | None = None

    @classmethod
    def composed(cls, overrides: Sequence[str]) -> "RunConfig":
        """The configuration of overrides, whose names alone are checked."""
        return cls(tuple(overrides), compose(list(overrides)))

    def __getitem__(self, key: str) -> Any:
        return self.plain[key]

    def changed(self, **execution: Any) -> "RunConfig":
        """The same run with other settings of execution, by which no run is named."""
        return replace(self, plain={**self.plain, **execution})

    @cached_property
    def digest(self) -> str:
        """The name of the run."""
        return digest(self.plain)

    @property
    def results(self) -> Path:
        """The results folder."""
        return Path(self["results_dir"])

    @property
    def path(self) -> Path:
        """The file of the run's record."""
        return self.results / RUNS / f"{self.digest}.json"

    @property
    def record(self) -> Record | None:
        """The run's valid record, if there is one."""
        return load(self.path) or self.committed

    @property
    def checkpoints(self) -> Path:
        """The folder of the run's checkpoints, which is removed when the run is complete."""
        return self.results / CHECKPOINTS / self.digest

    @property
    def tracking(self) -> Path:
        """The folder for the files of all trackers."""
        return self.results / TRACKING

    @property
    def data_folder(self) -> Path:
        """`data_dir`, or the default one."""
        return Path(self["data_dir"]) if self["data_dir"] else data_folder()

    @property
    def launcher(self) -> "Launcher[RunConfig]":
        return buildable.build_as(Launcher, "launcher", self["launcher"])

    @property
    def trackers(self) -> dict[str, Tracker]:
        """The trackers by name, without those that are switched off."""
        trackers = buildable.build("tracker", self["tracker"])
        if fits(trackers, Tracker):
            raise UserError(
                "tracker: nest the settings under NAME:, as conf/tracker/csv.yaml does."
            )
        typed("tracker", trackers, dict[str, Tracker] | None)
        return {name: each for name, each in (trackers or {}).items() if not each.is_off()}

    @property
    def tracks_curves(self) -> bool:
        """Whether trackers get metrics at each tenth of the run: by default of public data, unless
        diagnostics measure them."""
        if (chosen := self["tracker_curves"]) is not None:
            return chosen
        if self["choices"]["diagnostics"] == "curves":
            return False
        parts = leaves({"dataset": self["dataset"]})
        targets = [target for key, target in parts if key.endswith("_target_")]
        return all(t.startswith("dpbench.data.") and not t.startswith(CUSTOM) for t in targets)

    def is_missing(self) -> bool:
        """Whether the run has no record, or none that `again` accepts, or its model is wanted.

        Raises UserError for a folder in the place of the record, and for the model of a finished
        run that cannot be trained a second time.
        """
        refuse_folders(self.path)
        record, again = self.record, self["again"]
        if record is None or again is True or (again == STALE and is_stale(record)):
            return True
        if not self["save_model"]:
            return False
        wanted = not model_path(self.results, self.digest, self["noise"]).exists()
        if wanted and self["noise"] == "secure":
            raise UserError(
                "save_model=true: this run is finished, its model was not saved, and with "
                "noise=secure no second one is equal: again=true trains another, at an epsilon of "
                "its own."
            )
        return wanted

    def is_unfinished(self) -> bool:
        """Whether the run is missing, or was killed after it wrote the record, before its trackers
        ended."""
        return self.is_missing() or (self.path.exists() and self.checkpoints.exists())

    def why_not_tracked(self) -> str:
        """Why trackers log nothing of a finished run, as a sentence; "" without trackers."""
        names = [*self.trackers]
        if not names:
            return ""
        tracker = f"tracker={names[0] if len(names) == 1 else '[' + ','.join(names) + ']'}"
        command = shlex.join(["dpbench", "track", tracker, f"results_dir={self['results_dir']}"])
        return (
            f"{tracker} logs a run while it trains, and this one was finished earlier: {command} "
            "logs the finished records."
        )


def run_config(overrides: Sequence[str]) -> RunConfig:
    """The checked configuration of overrides; UserError for unknown names, numbers out of range,
    and settings of execution that cannot be used.

    Most of these are not part of a run's name, so they are checked here even for a finished run.
    """
    config = RunConfig.composed(overrides)
    check_numbers(config.plain)
    check_compute(config.plain)
    one_of("engine", config["engine"].get("name"), options("engine"))
    boolean("engine.graph", config["engine"].get("graph", False))
    check_execution(config)
    return config


def single_run(overrides: Sequence[str]) -> RunConfig:
    """The same of a run that this process executes; UserError for a launcher, too."""
    config = run_config(overrides)
    if (launcher := config["choices"]["launcher"]) != "local":
        raise UserError(
            f"launcher={launcher} launches the runs of a sweep, or a sweep of one: use dpbench run "
            "-m, or leave it out."
        )
    return config


def check_execution(config: RunConfig) -> None:
    """UserError for jobs, threads, folders or checkpoints out of range, and for a launcher or
    trackers that cannot be built."""
    most = MAX_PER_CORE * (os.cpu_count() or 1)
    integer("jobs", config["jobs"], most=most)
    if config["threads"] is not None:
        integer("threads", config["threads"], most=most)
    if config["checkpoint_minutes"] is not None:
        positive("checkpoint_minutes", config["checkpoint_minutes"])
    if config["tracker_curves"] is not None:
        boolean("tracker_curves", config["tracker_curves"])
    if boolean("save_model", config["save_model"]):
        # What they measure is not in the model.
        for group in ("temperature", "conformal", "normalization"):
            choice = str(config["choices"][group])
            if choice.startswith("private") and choice != "private_columns":
                raise UserError(
                    f"a model is saved without its {group}, which is measured on private data: "
                    f"give another {group} than {choice}, or do not save the model."
                )
    if not isinstance(config["again"], bool) and config["again"] != STALE:
        raise UserError(f"again={quoted(config['again'])} must be true, false or {STALE}.")
    path_of("results_dir", config["results_dir"])
    if config["data_dir"] is not None:
        path_of("data_dir", config["data_dir"])
    _ = config.launcher, config.trackers
