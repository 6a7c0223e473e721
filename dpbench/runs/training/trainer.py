"""The trainer: from a run to its record."""

import functools
import hashlib
import json
import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from dpbench.learning.data.examples import Data
from dpbench.learning.metrics.evaluation import packages_of_metrics
from dpbench.learning.metrics.registry import computed
from dpbench.learning.metrics.reliability import reliability
from dpbench.privacy.ledger import to_plain
from dpbench.privacy.profiles import attack_bounds
from dpbench.privacy.statement import Statement
from dpbench.runs.records.code import (
    CHECKSUM_KEY,
    PLUGIN_PARTS_KEY,
    built_by_plugins,
    imported_code_of,
)
from dpbench.runs.records.divergence import DIVERGED
from dpbench.runs.records.record import COVERED, Record
from dpbench.runs.training import evaluation
from dpbench.runs.training.checkpoints import Checkpoints
from dpbench.runs.training.loop import Training
from dpbench.runs.training.plan import Plan, plan, privacy_statement
from dpbench.runs.training.progress import Progress
from dpbench.runs.training.provenance import ResourceUsage, code, conditions, provenance
from dpbench.runs.training.run import Run
from dpbench.runs.training.start import pick_device, start_training
from dpbench.runs.training.statistics import ChannelNormalization
from dpbench.runs.training.tracking import Spending, Tracking, planned_spending, tenths
from dpbench.step.gradients.precision import in_full_precision
from dpbench.system.errors import print_message
from dpbench.system.interrupts import between_steps
from dpbench.system.memory import check_measurable


@in_full_precision
def fit(
    run: Run,
    data_dir: Path,
    quiet: bool = False,
    checkpoints: Checkpoints | None = None,
    tracking: Tracking | None = None,
    save: Callable[[nn.Module, Record, ChannelNormalization | None], None] | None = None,
) -> Record:
    """Train and evaluate one run, and return its record.

    A run whose parameters, or without privacy all gradients, are no longer finite ends early: its
    status, as with non-finite outputs or losses, is "diverged", its metrics are NaN, and its ledger
    has all planned steps, which covers when it ended. checkpoints: where to resume from and to save
    to; the record does not depend on interruptions. tracking: logs every epoch and, with curves,
    every tenth of the run. save: called with the trained model, the record, and the constants that
    the run has measured; if it fails or is interrupted, there is a checkpoint to go on from.
    """
    planned = plan(run)
    device = pick_device(run.device)
    if run.physical_batch_size == "auto":
        check_measurable(device)
    usage, code = ResourceUsage(device), _code(run)
    data = run.load(data_dir)
    evaluation.warn_of_empty_groups(data, run.dataset.groups)
    data = replace(data, train=data.train.to(device), test=data.test.to(device))
    training = _resumed(run, lambda: start_training(run, planned, data, copy(usage)), checkpoints)
    if training.steps_done and not quiet:
        print_message(f"resumed after step {training.steps_done:,} of {planned.steps:,}.")
    _train(run, training, data, quiet, checkpoints, tracking)
    try:
        series = training.observer.series() if training.observer else {}
        with training.evaluated():
            record = _record(run, planned, training, data, device, code, series)
            if save:
                save(training.step.engine.model, record, training.statistics)
    except BaseException:  # training is not repeated
        if checkpoints:
            checkpoints.save_at_exit(training.state_dict(), _checkpoint_conditions(run, training))
        raise
    return record


def _record(
    run: Run,
    planned: Plan,
    training: Training,
    data: Data,
    device: torch.device,
    code: dict,
    series: dict,
) -> Record:
    outputs, metrics = evaluation.evaluate(run, training.step.engine, data)
    finite = bool(outputs.isfinite().all()) and math.isfinite(metrics[f"{data.tested_on}/loss"])
    complete = finite and not training.diverged
    classes = run.dataset.task == "classification"
    return Record(
        config=run.config,
        metrics=(metrics if complete else dict.fromkeys(metrics, math.nan))
        | evaluation.noisy_score(run, outputs, data.test),
        privacy=_privacy(run, planned, training),
        provenance={**provenance(training.step, device, run.precision, training.usage), **code},
        status="complete" if complete else DIVERGED,
        history=training.history,
        diagnostics=series | evaluation.target_losses(training, data.targets),
        calibration=reliability(outputs, data.test.targets) if complete and classes else {},
        covered=COVERED,
    )


def _code(run: Run) -> dict:
    if not run.config:
        return {}
    parts = {PLUGIN_PARTS_KEY: built_by_plugins(run.config), "metrics": packages_of_metrics()}
    named = {key: names for key, names in parts.items() if names}
    return {CHECKSUM_KEY: imported_code_of(run.config, computed(run.dataset.task)), **named}


EARLY = (
    " The run ended early, by what it had released, which only the epsilon of all planned steps "
    "covers: it is the one stated."
)


def _privacy(run: Run, planned: Plan, training: Training) -> Statement:
    """The privacy statement of a run by the steps it took; of all planned steps, if the number of
    those taken follows from what they released (Rogers et al. 2016)."""
    taken = training.ledger.then(planned.once)
    if taken.steps == planned.ledger.steps:
        stated = privacy_statement(run, planned, taken)
        return {**stated, "attacks": attack_bounds(stated, taken)}
    stated = privacy_statement(run, planned)
    if planned.method.private:
        stated["why"] += EARLY
    return {**stated, "attacks": attack_bounds(stated, planned.ledger)}


def _checkpoint_conditions(run: Run, training: Training) -> dict:
    settings = {name: getattr(run, name) for name in ("physical_batch_size", "channels_last")}
    # Of the code that matters to the run, so that changes elsewhere in the library lose no work.
    settings[CHECKSUM_KEY] = imported_code_of(run.config) if run.config else code()
    # Numerical searches find the noise, whose last digits depend on versions and processors, and
    # a record has one ledger for all steps.
    ledger = json.dumps(to_plain(training.plan.ledger), sort_keys=True)
    settings["ledger"] = hashlib.sha256(ledger.encode()).hexdigest()[:12]
    engine = training.step.engine
    return conditions(engine.name, engine.parameters.theta.device) | settings


def _resumed(run: Run, make: Callable[[], Training], checkpoints: Checkpoints | None) -> Training:
    training: Training | None = make()
    assert training
    if checkpoints is None:
        return training

    def load(state: dict) -> None:
        nonlocal training
        candidate = training or make()
        training = None  # as a failed load may leave it partly loaded
        candidate.load_state_dict(state)
        training = candidate

    checkpoints.resume_from_last(_checkpoint_conditions(run, training), load)
    return training or make()


def _train(
    run: Run,
    training: Training,
    data: Data,
    quiet: bool,
    checkpoints: Checkpoints | None,
    tracking: Tracking | None,
) -> None:
    resume_conditions = _checkpoint_conditions(run, training)
    folder = checkpoints.folder if checkpoints else None
    measured_after = tenths(training.plan.steps) if tracking and tracking.with_curves else set()
    if tracking:
        tracking.curves.resume(training.steps_done)
    progress = Progress(training.plan, run.privacy.delta, quiet, training.steps_done, folder)

    @functools.cache
    def spending() -> Spending:
        return planned_spending(run, training.plan)

    with between_steps() as interrupted, progress:
        for _ in training:
            progress.advance()
            if training.between_epochs:
                progress.loss = training.history["train/loss"][-1]
            step = training.steps_done
            if tracking and step in measured_after:
                tracking.curves.add(step, evaluation.tested(run, training, data))
            if tracking and (training.between_epochs or step in measured_after):
                measured = training.observer.columns if training.observer else {}
                tracking.update(spending, training.history, measured, step)
            if checkpoints and checkpoints.due():
                checkpoints.save(training.state_dict(), resume_conditions)
            if interrupted():
                break
        if checkpoints and interrupted():
            checkpoints.save_at_exit(training.state_dict(), resume_conditions)
