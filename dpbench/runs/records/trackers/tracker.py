"""What trackers have in common: the run as they identify it, its log, and their interface."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dpbench.runs.config import buildable
from dpbench.runs.config.search_path import with_variant
from dpbench.runs.config.settings import NAMED_GROUPS, SCIENTIFIC, leaves, variant_of
from dpbench.runs.records.digest import digest, group_of, scientific
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


IN_NAME = ("seed", "method.variant", "privacy.epsilon", "privacy.noise_multiplier")
"""Settings that a name has anyway."""

MAX_COMPONENT = 200
"""The most characters of a component of a group's path."""


@dataclass(frozen=True)
class RunInfo:
    """A run as trackers identify it.

    digest: of its settings. name: for people. group: its table or data set, its method and its
    budget, and a name of all settings but the seed. folder: for the files of all trackers. terms:
    what the logged epsilon is stated for, and that no other number is covered.
    """

    digest: str
    name: str
    group: str
    tags: tuple[str, ...]
    config: dict
    folder: Path
    terms: str = ""


def run_info(config: dict, folder: Path, table: str = "", sweeps: Sequence[str] = ()) -> RunInfo:
    """The identity of a run with this configuration. table, sweeps: those it belongs to, if any."""
    choices = config["choices"]
    dataset, model, method = (choices[part] for part in NAMED_GROUPS)
    method = with_variant(method, variant_of(config))
    budget = _budget(config)
    return RunInfo(
        digest=digest(config),
        name=" ".join([method, dataset, budget, f"seed={config['seed']}", *_own_settings(config)]),
        group="/".join(map(_component, (table or dataset, method, budget, group_of(config)[:8]))),
        tags=tuple(filter(None, (table, dataset, model, method, budget, *sweeps))),
        config=scientific(config),
        folder=folder,
    )


def group_names(config: dict) -> tuple[str, ...]:
    """The names of the groups in the order of their numbers; none where the data set of a record
    cannot be built."""
    dataset = config["dataset"]
    try:
        return tuple(dataset.get("groups") or buildable.build("dataset", dataset).groups)
    except UserError:
        return ()


def _own_settings(config: dict) -> list[str]:
    """The settings that are not those of the chosen options, such as lr=0.1."""
    options = {group: o for group, o in config["choices"].items() if group in SCIENTIFIC}
    defaults = _defaults(tuple(f"{group}={option}" for group, option in options.items()))
    settings = dict(leaves({key: config.get(key) for key in SCIENTIFIC}))
    return [
        f"{key.rpartition('.')[2]}={settings[key]}"
        for key in sorted(settings.keys() & defaults.keys())
        if settings[key] != defaults[key] and key not in IN_NAME
    ]


@functools.lru_cache(maxsize=64)
def _defaults(options: tuple[str, ...]) -> dict:
    """The settings of options; empty where they cannot be composed, as of data that moved."""
    from dpbench.runs.config.compose import compose  # which imports Hydra

    try:
        return dict(leaves(compose(list(options))))
    except UserError:
        return {}


def _component(text: str) -> str:
    """The text as one component of a path: a folder is named by it, and a record may have any."""
    return re.sub(r"[/\\\x00-\x1f]|^\.{1,2}$", "_", text)[:MAX_COMPONENT]


def _budget(config: dict) -> str:
    privacy = config.get("privacy") or {}
    for name, label in (("epsilon", "target_epsilon"), ("noise_multiplier", "noise_multiplier")):
        if privacy.get(name) is not None:
            return f"{label}={privacy[name]}"
    return config["choices"].get("privacy", "none")


Points: TypeAlias = "pd.DataFrame"
"""The numbers in a picture."""


class Log(Protocol):
    """The open log of one run. Numbers of a step may come in several calls, and steps in any
    order. A process that resumes a run opens a new log, and logs everything again."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """step: the number of steps done when the numbers were measured."""

    def figure(self, name: str, png: bytes | None, points: Points) -> None:
        """The numbers in a picture, and the picture if it was drawn."""

    def finish(self, record: Record) -> None:
        """Log the metrics and the privacy of the finished run, and close."""


class Tracker(Protocol):
    """A configured tracker, which opens one log per run."""

    def is_off(self) -> bool:
        """Whether it is switched off, by its settings or the environment."""
        return False

    def start(self, info: RunInfo) -> Log: ...

    def has(self, info: RunInfo) -> bool:
        """Whether a second log of a finished run would be another run there; False where it
        replaces the first."""
        return False

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        """Store a finished table, or nothing. files: by suffix."""
        return
