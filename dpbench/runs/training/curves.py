"""Metrics of the test set while a run goes on, for its trackers alone: no record has them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dpbench.runs.records.reading import text_of
from dpbench.runs.records.trackers import RunInfo
from dpbench.system.files import write_atomically

CurvePoint = Mapping[str, float]


class Curves:
    """Rows by step, in a file for the process that resumes the run, or logs its record."""

    def __init__(self, info: RunInfo):
        self._path = info.folder / "curves" / f"{info.digest}.json"
        self.rows = _rows(self._path)

    def resume(self, steps: int) -> None:
        """Forget what is measured again after so many steps, maybe by other code."""
        kept = {step: row for step, row in self.rows.items() if step <= steps}
        if kept != self.rows:
            self._write(kept)

    def add(self, step: int, row: CurvePoint) -> None:
        self._write({**self.rows, step: row})

    def _write(self, rows: dict[int, CurvePoint]) -> None:
        self.rows = rows
        with suppress(OSError):  # on a full disk too, no run fails by its trackers
            write_atomically(self._path, json.dumps(rows).encode())


def _rows(path: Path) -> dict[int, CurvePoint]:
    """The rows of a file; none without one, or if it has any other content."""
    try:
        found = json.loads(str(text_of(path)))
        return {
            int(step): {str(name): float(value) for name, value in row.items()}
            for step, row in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def tenths(steps: int) -> set[int]:
    """After how many steps each tenth of a run ends, but for the last."""
    return {-(-steps * tenth // 10) for tenth in range(1, 10)} - {steps}
