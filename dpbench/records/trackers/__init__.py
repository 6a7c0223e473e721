"""Trackers log the numbers of a run as it trains; they do not affect the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dpbench.records.record import Record


@dataclass(frozen=True)
class RunInfo:
    """A run as trackers identify it: its digest, its group (table and method), its configuration,
    and a folder for the files of all trackers.

    steps_done: by an earlier process, if this one resumes its run. Their numbers are logged again;
    a log must keep each number of a step only once.
    """

    digest: str
    group: str
    config: dict
    folder: Path
    steps_done: int = 0


class Log(Protocol):
    """The open log of one run. Numbers of a step may come in several calls, and steps in any
    order."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """step: the number of steps done when the numbers were measured."""
        ...

    def picture(self, name: str, png: bytes) -> None: ...

    def finish(self, record: Record) -> None:
        """Log the metrics and the privacy of the finished run, and close."""
        ...


class Tracker(Protocol):
    """A configured tracker, which opens one log per run."""

    def start(self, info: RunInfo) -> Log: ...

    def table(self, name: str, files: Mapping[str, bytes], folder: Path) -> None:
        """Store a finished table. files: by suffix."""
        ...
