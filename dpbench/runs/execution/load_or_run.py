"""From a configuration to a record; a finished run is not repeated."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpbench.learning.data.dataset import vocabulary_of
from dpbench.learning.data.probe import probe
from dpbench.learning.data.tokens import TextPreparation
from dpbench.runs.config.settings import key_of
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.records.epsilon import epsilon_in_words, facts_in_words
from dpbench.runs.records.reading import load, set_aside_invalid
from dpbench.runs.records.record import Record
from dpbench.runs.records.sweep_list import sweeps_of
from dpbench.runs.records.trackers.tracker import run_info
from dpbench.runs.records.trained_model import model_path, serialised
from dpbench.runs.training.checkpoints import Checkpoints, locked_checkpoints
from dpbench.runs.training.plan import plan
from dpbench.runs.training.run import Run
from dpbench.runs.training.start import pick_device
from dpbench.runs.training.statistics import ChannelNormalization, ColumnNormalization
from dpbench.runs.training.tracking import Tracking
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import os_errors_reported
from dpbench.system.files import check_writable, refuse_folders, remove_parts, write_atomically
from dpbench.system.interrupts import graceful_interrupts
from dpbench.system.memory import retain_freed_memory

if TYPE_CHECKING:  # pandas takes longer to import than a small run
    from dpbench.learning.data.custom.preparation import TablePreparation, Values


@os_errors_reported()
def load_or_run(config: RunConfig, quiet: bool = False, wait: bool = True) -> Path:
    """The path of a run's record; the run is executed first if there is none, or `again` says so.

    An interrupted run resumes from its last checkpoint; with again=true it starts over. If another
    process is executing the run, this one waits, or raises Busy if `wait` is false.
    """
    run, path, folder = run_of(config), config.path, config.checkpoints
    if missing := config.is_missing():
        pick_device(run.device)
        plan(run)  # refuses bad requests before any work; accountants remember what it cost
    if missing or folder.exists():
        check_writable(path.parent)
        minutes = config["checkpoint_minutes"]
        with graceful_interrupts(), locked_checkpoints(folder, minutes, wait) as checkpoints:
            remove_parts(path.parent, path.name)
            tracking, record = _tracking(config), None
            if config.is_missing():  # again: another process may have just finished the run
                record = _fit_and_save(config, run, checkpoints, tracking, quiet)
            elif checkpoints.abandoned:  # by a process that ended after it wrote the record
                record = load(path)
            if record and tracking:
                tracking.finish(record)
            checkpoints.clear()
    return path


def _fit_and_save(
    config: RunConfig, run: Run, checkpoints: Checkpoints, tracking: Tracking | None, quiet: bool
) -> Record:
    if config["again"] is True:
        checkpoints.clear()
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    retain_freed_memory()
    set_aside_invalid(config.path)

    file = model_path(config.results, config.digest, run.noise)
    prepared = file.with_suffix(".preparation.json")
    preparation = _preparation(run) if config["save_model"] else None
    texts = _text_preparation(run) if config["save_model"] else None

    def save(model: nn.Module, record: Record, measured: ChannelNormalization | None) -> None:
        """What cannot be made again first; the record last, as with it the run is finished."""
        if config["save_model"]:
            inputs = probe(run.dataset, 1).inputs.to(next(model.parameters()).device)
            classes = run.dataset.classes
            privacy = epsilon_in_words(record, alone=True)
            content = serialised(model, config["model"], inputs, classes, privacy, texts)
            write_atomically(file, content)
        else:
            file.unlink(missing_ok=True)  # of another training than the one of this record
        if preparation:
            write_atomically(prepared, _prepared(*preparation, measured, record))
        else:
            prepared.unlink(missing_ok=True)
        record.save(config.results)

    if config["save_model"] or file.exists() or prepared.exists():
        check_writable(file.parent)
        refuse_folders(file, prepared)
    return fit(run, config.data_folder, quiet, checkpoints, tracking, save)


def _preparation(run: Run) -> "tuple[TablePreparation, Values] | None":
    """How the rows of a table of the user's own are prepared, but for what the run measures, and
    the values that it selects from; None for other data."""
    table = _read(run.dataset)
    exact = getattr(table, "preparation", lambda _: None)(run.seed)
    return None if exact is None else (exact, table.candidates())


def _prepared(
    exact: "TablePreparation",
    values: "Values",
    measured: ChannelNormalization | None,
    record: Record,
) -> bytes:
    if isinstance(measured, ColumnNormalization):
        exact = measured.prepared(exact, values)
    facts = "; ".join(facts_in_words(record.statement))
    return exact.json(f"What this file says of the data: {facts}.").encode()


def _text_preparation(run: Run) -> TextPreparation | None:
    prepare = getattr(_read(run.dataset), "text_preparation", None)
    return prepare() if prepare and vocabulary_of(run.dataset) is not None else None


def _read(dataset: Any) -> Any:
    """The data set that others are derived from."""
    while hasattr(dataset, "base"):
        dataset = dataset.base
    return dataset


def _tracking(config: RunConfig) -> Tracking | None:
    if not (trackers := config.trackers):
        return None
    sweeps = sweeps_of(config.results, config.digest)
    tables = (o.partition("=")[2] for o in config.overrides if key_of(o) == "table")
    info = run_info(config.plain, config.tracking, next(tables, ""), sweeps)
    return Tracking(trackers, info, config.tracks_curves)
