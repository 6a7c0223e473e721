"""Short names of runs, by which progress and refusals tell them apart."""

import shlex
from collections.abc import Sequence
from contextlib import suppress

from dpbench.config.compose import compose
from dpbench.records.digest import digest
from dpbench.system.errors import UserError


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
