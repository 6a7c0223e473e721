"""Runs from Python, as in a notebook: `from dpbench import run`."""

import os
import warnings
from collections.abc import Mapping

from dpbench.runs.config.experiments import with_experiment
from dpbench.runs.config.literals import literal
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.validate import quoted

RESTART = "If you have changed the code since Python imported it, start Python again."


def run(*overrides: str, quiet: bool = False, **settings: object) -> Record:
    """The record of a run, which is executed unless it has one: as `dpbench run` does.

    overrides: as on the command line, such as `"optimizer.lr=0.1"`. settings: the same for keys
    without a dot, such as `method="bam", seed=1`. quiet: without a progress bar. Raises UserError
    for settings that are refused.
    """
    from dpbench.runs.execution.load_or_run import load_or_run  # which imports torch
    from dpbench.runs.execution.run_config import single_run
    from dpbench.runs.records.code import STALE_RECORD, is_stale
    from dpbench.runs.records.reading import read

    given = with_experiment(as_overrides(overrides, settings))
    record = read(load_or_run(single_run(given), quiet))
    if not isinstance(record, Record):
        raise UserError(f"the record {record.source} {record.reason}.")
    if is_stale(record):
        warnings.warn(f"{STALE_RECORD} {RESTART}", stacklevel=2)
    return record


def as_overrides(overrides: tuple[str, ...], settings: Mapping[str, object]) -> list[str]:
    """The overrides, and settings as overrides; UserError for what the grammar cannot express."""
    for override in overrides:
        if not isinstance(override, str):
            raise UserError(
                f"{quoted(override)} is not text: write settings as in run(epochs=1), or for keys "
                'with a dot run("optimizer.lr=0.1").'
            )
    texts = {key: literal(_plain(value)) for key, value in settings.items()}
    for key, text in texts.items():
        if text is None:
            value = quoted(settings[key])
            raise UserError(f"{key}={value} is not a number, text, list or mapping.")
    return [*overrides, *(f"{key}={text}" for key, text in texts.items())]


def _plain(value: object) -> object:
    import numpy as np  # which importing dpbench must not import

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value
