"""What is under way in a results folder: sweeps, their progress and failures, from its files."""

import time
from pathlib import Path
from typing import Any

from dpbench.comparison.dashboard.documents import text_in
from dpbench.runs.records.folder import CHECKPOINTS, FAILURES, SWEEPS
from dpbench.runs.training.progress import running_steps
from dpbench.system.files import files_in

RECENT = 60.0
"""Seconds after which a run that has written no step is taken for killed."""

OTHERS = "runs of no sweep"


def live(folder: Path, finished: set[str]) -> list[dict]:
    """The sweeps with missing or failed runs, and what else runs: `name`; `done` of `total` runs;
    `running`, the digest of each with its steps and their number; `failed`, why, "" if none did.

    finished: the digests of the runs with a record.
    """
    names = {path.name: path.name for path in files_in(folder / CHECKPOINTS, "*")}
    steps = running_steps(folder, names, time.time() - RECENT)
    running = {step.name: step for step in steps()}
    lists, texts = (
        {path.stem: text_in(path) for path in files_in(folder / name, "*.txt")}
        for name in (SWEEPS, FAILURES)
    )
    sweeps = {name: {*text.split()} for name, text in lists.items()}
    sweeps[OTHERS] = running.keys() - set[str]().union(*sweeps.values())
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "done": len(digests & finished),
            "total": len(digests),
            "running": [running[digest] for digest in sorted(digests & running.keys())],
            "failed": texts.get(name, ""),
        }
        for name in dict.fromkeys((*texts, *sweeps))
        for digests in [sweeps.get(name, set())]
    ]
    return [row for row in rows if row["done"] < row["total"] or row["failed"]]
