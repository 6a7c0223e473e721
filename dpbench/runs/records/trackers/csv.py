"""One CSV file per run: a row per step, a column per number; empty where a step has none."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import Points, RunInfo, Tracker
from dpbench.system.files import write_atomically


@dataclass(frozen=True)
class CsvTracker(Tracker):
    """`tracking/csv/DIGEST.csv`, rewritten atomically at each call; beside it terms and figures.
    Tables are CSV files already."""

    def start(self, info: RunInfo) -> "CsvLog":
        path = info.folder / "csv" / f"{info.digest}.csv"
        write_atomically(path.with_suffix(".txt"), f"{info.terms}\n".encode())
        return CsvLog(path)


@dataclass(frozen=True)
class CsvLog:
    path: Path
    rows: dict[int, dict[str, float]] = field(default_factory=dict)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.rows.setdefault(step, {}).update(numbers)
        # Sorted, so that a resumed run writes the same file as one without interruption.
        names = sorted({name for row in self.rows.values() for name in row})
        text = io.StringIO()
        table = csv.DictWriter(text, ["step", *names], lineterminator="\n")
        table.writeheader()
        table.writerows({"step": step, **self.rows[step]} for step in sorted(self.rows))
        write_atomically(self.path, text.getvalue().encode())

    def figure(self, name: str, png: bytes | None, points: Points) -> None:
        beside = self.path.with_name(f"{self.path.stem}-{name}")
        if png:
            write_atomically(beside.with_suffix(".png"), png)
        write_atomically(beside.with_suffix(".csv"), points.to_csv(index=False).encode())

    def finish(self, record: Record) -> None:
        self.log(record.privacy["steps"], record.metrics)
