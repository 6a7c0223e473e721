"""The runs of a sweep that are under way, by the file in which each keeps its steps."""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.config.compose import compose
from dpbench.records.digest import digest
from dpbench.records.folder import CHECKPOINTS
from dpbench.system.errors import UserError
from dpbench.system.progress import Steps
from dpbench.training.steps_file import read


def short_names(runs: Sequence[list[str]]) -> list[str]:
    """A short name for each of several runs: the overrides that not all of them have."""
    common = set.intersection(*map(set, runs)) if runs else set()
    return [shlex.join(o for o in run if o not in common) or "run" for run in runs]


def names_by_digest(runs: Sequence[list[str]]) -> dict[str, str]:
    """Short names of runs by the digests of their records, without those that are invalid."""
    names: dict[str, str] = {}
    for run, name in zip(runs, short_names(runs), strict=True):
        with suppress(UserError):
            names[digest(compose(run))] = name
    return names


def running_steps(results: Path, name: Callable[[str], str | None]) -> Callable[[], list[Steps]]:
    """A function that reads the steps of the runs under way in a results folder.

    name: maps a digest to the run's name, or to None for a run of another command. Files written
    before now are ignored, since their runs were killed.
    """
    begun = time.time()

    def steps() -> list[Steps]:
        folders = results / CHECKPOINTS
        digests: list[str] = []
        with suppress(OSError):  # no run is under way
            digests = os.listdir(folders)
        named = [(label, digest) for digest in digests if (label := name(digest)) is not None]
        found = ((label, read(folders / digest, begun)) for label, digest in sorted(named))
        return [Steps(label, *steps) for label, steps in found if steps]

    return steps
