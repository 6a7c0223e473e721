"""Runs from Python, as in a notebook: `from dpbench import run`."""

import warnings
from collections.abc import Mapping

from dpbench.errors import UserError
from dpbench.execution.rerun import hydra_value
from dpbench.records.record import Record
from dpbench.validate import quoted

RESTART = "If you have changed the code since Python imported it, start Python again."


def run(*overrides: str, quiet: bool = False, **settings: object) -> Record:
    """The record of a run, which is executed unless it has one: as `dpbench run` does.

    overrides: as on the command line, such as `"optimizer.lr=0.1"`. settings: the same for keys
    without a dot, such as `method="bam", seed=1`. quiet: without a progress bar. Raises UserError
    for settings that are refused.
    """
    from dpbench.execution.run import load_or_run  # which imports torch
    from dpbench.records.code import STALE_RECORD, is_stale
    from dpbench.records.reading import read

    record = read(load_or_run(as_overrides(overrides, settings), quiet))
    if not isinstance(record, Record):
        raise UserError(f"the record {record.source} {record.reason}.")
    if is_stale(record):
        warnings.warn(f"{STALE_RECORD} {RESTART}", stacklevel=2)
    return record


def as_overrides(overrides: tuple[str, ...], settings: Mapping[str, object]) -> list[str]:
    """The overrides, and settings as overrides; UserError for what the grammar cannot express."""
    texts = {key: hydra_value(value) for key, value in settings.items()}
    for key, text in texts.items():
        if text is None:
            value = quoted(settings[key])
            raise UserError(f"{key}={value} is not a number, text, list or mapping.")
    return [*overrides, *(f"{key}={text}" for key, text in texts.items())]
