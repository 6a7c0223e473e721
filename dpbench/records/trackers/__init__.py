"""Where the numbers of a run are shown while it goes on. What a run is does not depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dpbench.records.record import Record


@dataclass(frozen=True)
class About:
    """What a tracker is told at the start: the run's digest, the group it belongs to (table and
    method), its configuration, and a folder for the files of all trackers.

    steps_done: by an earlier process whose run this one resumes. What was told of them is told
    again: a log has each number of each step once.
    """

    digest: str
    group: str
    config: dict
    folder: Path
    steps_done: int = 0


class Log(Protocol):
    """The open log of one run. Numbers of one step may come in several calls, and steps in any
    order."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """step: how many were made when the numbers were taken."""
        ...

    def picture(self, name: str, png: bytes) -> None: ...

    def finish(self, record: Record) -> None:
        """The run is over: what it measured and spent."""
        ...


class Tracker(Protocol):
    """A kind of log, as configured; makes one log per run."""

    def start(self, about: About) -> Log: ...

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        """Keep a finished table: its files by suffix."""
        ...
