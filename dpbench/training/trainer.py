"""The trainer: from a run to its record."""

import functools
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dpbench import seeds
from dpbench.config.settings import no_device
from dpbench.data.dataset import Batch, Data, Dataset, Split, Targets, calibration_size_of
from dpbench.data.probe import probe, probe_users
from dpbench.errors import UserError, print_message
from dpbench.gradients import Engine, ForwardOptions, make_engine
from dpbench.gradients.precision import Precision, full_precision_products
from dpbench.mechanism.fit_memory import fit_memory
from dpbench.mechanism.physical_batches import PhysicalBatches
from dpbench.mechanism.step import PrivateStep
from dpbench.memory import check_measurable
from dpbench.metrics.registry import NOISY_ACCURACY
from dpbench.metrics.reliability import reliability
from dpbench.metrics.tasks import FIT, METRICS
from dpbench.models.architecture import LOSSES, check_outputs
from dpbench.models.predict import predict
from dpbench.privacy.ledger import Ledger, to_plain
from dpbench.records.code import CHECKSUM_KEY, PLUGIN_PARTS_KEY, built_by_plugins, imported_code_of
from dpbench.records.divergence import DIVERGED
from dpbench.records.record import COVERED, Record
from dpbench.training.averaging import MovingAverage
from dpbench.training.checkpoints import Checkpoints
from dpbench.training.interrupts import between_steps
from dpbench.training.loop import Batches, Training
from dpbench.training.plan import Plan, Run, plan, privacy_statement
from dpbench.training.progress import Progress
from dpbench.training.provenance import ResourceUsage, code, conditions, provenance
from dpbench.training.score import noisy_accuracy
from dpbench.training.statistics import ChannelNormalization
from dpbench.training.temperature import UNSCALED, PrivateTemperature, Scaling
from dpbench.training.tracking import Spending, Tracking, planned_spending


@full_precision_products()
def fit(
    run: Run,
    data_dir: Path,
    quiet: bool = False,
    checkpoints: Checkpoints | None = None,
    tracking: Tracking | None = None,
    on_model: Callable[[nn.Module], None] | None = None,
) -> Record:
    """Train and evaluate one run, and return its record.

    A run whose parameters, or without privacy all gradients, are no longer finite ends early. Its
    status, and that of a run with non-finite outputs or losses, is "diverged"; its metrics are NaN,
    and its ledger has all planned steps, which covers when it ended. quiet: no progress bar.
    checkpoints: where to resume from and to save to, if anywhere; the record does not depend on
    interruptions. tracking: logs every epoch. on_model: called with the trained model, at the
    parameters it is evaluated at.
    """
    planned = plan(run)
    device = pick_device(run.device)
    if run.physical_batch_size == "auto":
        check_measurable(device)
    usage, code = ResourceUsage(device), _code(run.config)
    data = run.load(data_dir)
    _warn_of_empty_groups(data, run.dataset.groups)
    examples, test = data.train.to(device), data.test.to(device)
    training = _resumed(
        run, lambda: start_training(run, planned, device, examples, test, copy(usage)), checkpoints
    )
    if training.steps_done and not quiet:
        print_message(f"resumed after step {training.steps_done:,} of {planned.steps:,}.")
    _train(run, training, quiet, checkpoints, tracking)
    on_device = replace(data, train=examples, test=test)
    outputs, metrics = _evaluate_or_save(run, training, on_device, checkpoints)
    if on_model:
        with _evaluated(training):
            on_model(training.step.engine.model)
    ledger, score = _scored(run, planned, training, outputs, test)
    finite = bool(outputs.isfinite().all()) and math.isfinite(metrics[f"{data.tested_on}/loss"])
    complete = finite and not training.diverged
    classes = run.dataset.task == "classification"
    return Record(
        config=run.config,
        metrics=(metrics if complete else dict.fromkeys(metrics, math.nan)) | score,
        privacy=_privacy(run, planned, ledger),
        provenance={
            **provenance(training.step, device, run.precision, training.usage),
            **code,
        },
        status="complete" if complete else DIVERGED,
        history=training.history,
        diagnostics=(training.observer.series() if training.observer else {})
        | _target_losses(training, data.targets),
        calibration=reliability(outputs, test.targets) if complete and classes else {},
        covered=COVERED,
    )


def _warn_of_empty_groups(data: Data, names: Sequence[str]) -> None:
    """Warn of groups that no held-out example belongs to."""
    sizes = torch.bincount(data.test.groups.cpu(), minlength=len(names)).tolist()
    if empty := [name for name, size in zip(names, sizes, strict=True) if not size]:
        warnings.warn(
            f"no {data.tested_on} example is in group {' or '.join(empty)}: its accuracy and all "
            "gaps between groups are NaN.",
            stacklevel=2,
        )


def _code(config: dict) -> dict:
    """The entries on code in the provenance of a composed run."""
    if not config:
        return {}
    built = built_by_plugins(config)
    return {CHECKSUM_KEY: imported_code_of(config), **({PLUGIN_PARTS_KEY: built} if built else {})}


EARLY = (
    " The run ended early, by what it had released, which only the epsilon of all planned steps "
    "covers: it is the one stated."
)


def _privacy(run: Run, planned: Plan, ledger: Ledger) -> dict:
    """The privacy statement of a run with the ledger of the steps it took; of all planned steps,
    if the number of those taken follows from what they released (Rogers et al. 2016)."""
    if ledger.steps == planned.ledger.steps:
        return privacy_statement(run, planned, ledger)
    stated = privacy_statement(run, planned)
    return stated | {"why": stated["why"] + EARLY} if planned.method.private else stated


def _scored(
    run: Run, planned: Plan, training: Training, outputs: Tensor, test: Split
) -> tuple[Ledger, dict[str, float]]:
    """The ledger of the whole run, and the noisy accuracy if configured.

    Also of a diverged run: that its metrics are not finite is not released.
    """
    ledger = training.ledger.then(planned.once)
    if run.score_noise_multiplier is None:
        return ledger, {}
    noise = run.stream("score", torch.device("cpu"))
    score = noisy_accuracy(outputs, test.targets, run.score_noise_multiplier, noise)
    return ledger, {NOISY_ACCURACY: score}


def _evaluated(training: Training) -> AbstractContextManager:
    """The context in which the model has the parameters that a run is evaluated at."""
    return training.average.applied() if training.average else nullcontext()


def _target_losses(training: Training, targets: Targets | None) -> dict[str, list[float]]:
    """The losses of an attack's targets at the parameters that the run is evaluated at, their
    groups, and 1 for those that were trained on; no columns without targets."""
    if targets is None:
        return {}
    engine = training.step.engine
    with _evaluated(training):
        examples = targets.examples.to(engine.parameters.theta.device)
        _, losses = predict(engine.model, engine.loss, examples)
    columns = {"loss": losses, "group": examples.groups, "included": targets.included.long()}
    return {f"target/{name}": column.tolist() for name, column in columns.items()}


def _evaluate(run: Run, engine: Engine, data: Data) -> tuple[Tensor, dict[str, float]]:
    """Outputs [n, K] for the test set, and the metrics of both sets; of the scaled model if a
    temperature is fitted."""
    model: nn.Module = engine.model
    outputs, tested = _on_split(METRICS, run.dataset, model, engine, data.test)
    if run.temperature and data.calibration:
        scaling = _scaling(run, run.temperature, engine, data.calibration)
        unscaled, model = tested, nn.Sequential(model, scaling)
        outputs, tested = _on_split(METRICS, run.dataset, model, engine, data.test)
        tested |= {f"{name}_unscaled": unscaled[name] for name in UNSCALED} | scaling.metrics
    _, fitted = _on_split(FIT, run.dataset, model, engine, data.train)
    on_test = {f"{data.tested_on}/{name}": value for name, value in tested.items()}
    return outputs, on_test | {f"train_set/{name}": value for name, value in fitted.items()}


def _on_split(
    metrics: Mapping[str, Callable],
    dataset: Dataset,
    model: nn.Module,
    engine: Engine,
    split: Split,
) -> tuple[Tensor, dict[str, float]]:
    """Outputs [n, K] of a model for a split, and its metrics there."""
    outputs, losses = predict(model, engine.loss, split)
    measure = metrics[dataset.task]
    return outputs, measure(outputs, losses, split.targets, split.groups, dataset.groups)


def _scaling(
    run: Run, temperature: PrivateTemperature, engine: Engine, calibration: Split
) -> Scaling:
    """The scaling fitted on the logits of its held-out examples."""
    device = engine.parameters.theta.device
    logits, _ = predict(engine.model, engine.loss, calibration.to(device))
    examples = Split(logits, calibration.targets, calibration.groups).to(torch.device("cpu"))
    size = calibration_size_of(run.dataset)
    return temperature.fitted(
        examples, size, lambda purpose: run.stream(purpose, torch.device("cpu"))
    ).to(device)


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        probe = torch.zeros(1, device=name)
        probe.item()  # fails on `meta` and similar devices
        return probe.device
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        raise UserError(no_device(name)) from error


def private_step(run: Run, planned: Plan, device: torch.device) -> PrivateStep:
    """The private step of a run, its model freshly initialised from the run's seed."""
    views = run.augmentation.views if run.augmentation else 1
    probe_batch = _probe_batch(run, planned, views).each(lambda t: t.to(device))
    loss, physical = LOSSES[run.dataset.task], run.physical_batch_size
    options = ForwardOptions(Precision(run.precision), run.channels_last)
    model = run.initial_model(device)
    check_outputs(model, probe(run.dataset, 1).inputs.to(device), run.dataset.classes)
    engine = make_engine(run.engine, model, loss, probe_batch, views, options)
    step = PrivateStep(
        engine=engine,
        method=planned.method,
        optimizer=run.optimizer([engine.parameters.theta]),
        noise_multiplier=planned.noise_multiplier,
        expected_batch_size=planned.sampler.expected_batch_size,
        physical=PhysicalBatches(physical if isinstance(physical, int) else None),
        steps=planned.steps,
        schedule=planned.schedule,
        seed=run.draws_seed(),
        noise_stream=run.stream("noise", device),
        count_stream=run.stream("counts", device),
    )
    if physical == "auto" and not planned.method.whole_batches:
        fit_memory(step, probe_batch)
    return step


def _probe_batch(run: Run, planned: Plan, views: int) -> Batch:
    if run.users:
        return probe_users(run.dataset, max(planned.units.sizes))
    return probe(run.dataset, views)


def start_training(
    run: Run,
    planned: Plan,
    device: torch.device,
    examples: Split,
    test: Split,
    usage: ResourceUsage,
) -> Training:
    """The training of a run, before its first step."""
    step = private_step(run, planned, device)
    theta = step.engine.parameters.theta
    observer = run.diagnostics.observer(step, examples, test) if run.diagnostics else None
    train = run.users.of(examples, run.seed) if run.users else examples
    constants = examples.normalize
    return Training(
        plan=planned,
        step=step,
        batches=Batches(
            planned.sampler,
            train,
            run.augmentation,
            run.stream("batches", torch.device("cpu")),
            seeds.generator(step.seed, "augmentation", examples.device),
        ),
        observer=observer,
        average=None if run.ema_decay is None else MovingAverage(run.ema_decay, theta),
        usage=usage,
        statistics=constants if isinstance(constants, ChannelNormalization) else None,
    )


def _checkpoint_conditions(run: Run, training: Training) -> dict:
    """The conditions under which the run may resume from a checkpoint."""
    settings = {name: getattr(run, name) for name in ("physical_batch_size", "channels_last")}
    # Of the code that the run imports, so that changes elsewhere in the library lose no work.
    settings[CHECKSUM_KEY] = imported_code_of(run.config) if run.config else code()
    # Numerical searches find the noise, whose last digits depend on versions and processors, and
    # a record has one ledger for all steps.
    ledger = json.dumps(to_plain(training.plan.ledger), sort_keys=True)
    settings["ledger"] = hashlib.sha256(ledger.encode()).hexdigest()[:12]
    engine = training.step.engine
    return conditions(engine.name, engine.parameters.theta.device) | settings


def _resumed(run: Run, make: Callable[[], Training], checkpoints: Checkpoints | None) -> Training:
    """The training resumed from the last usable checkpoint, or else from the start."""
    training: Training | None = make()
    assert training
    if checkpoints is None:
        return training

    def load(state: dict) -> None:
        nonlocal training
        # A failed load may leave a partly loaded training, which must not be used.
        candidate, training = training or make(), None
        candidate.load_state_dict(state)
        training = candidate

    checkpoints.resume_from_last(_checkpoint_conditions(run, training), load)
    return training or make()


def _train(
    run: Run,
    training: Training,
    quiet: bool,
    checkpoints: Checkpoints | None,
    tracking: Tracking | None,
) -> None:
    """Take all remaining steps."""
    resume_conditions = _checkpoint_conditions(run, training)
    steps_file = checkpoints.steps_file if checkpoints else None
    progress = Progress(training.plan, run.privacy.delta, quiet, training.steps_done, steps_file)

    @functools.cache
    def spending() -> Spending:
        return planned_spending(run, training.plan)

    with between_steps() as interrupted, progress:
        for _ in training:
            progress.advance()
            if training.between_epochs:
                progress.show_loss(training.history["train/loss"][-1])
                if tracking:
                    tracking.end_of_epoch(spending, training.history, training.measured)
            if checkpoints and checkpoints.due():
                checkpoints.save(training.state_dict(), resume_conditions)
            if interrupted():
                break
        if checkpoints and interrupted():
            checkpoints.save_at_exit(training.state_dict(), resume_conditions)


def _evaluate_or_save(
    run: Run,
    training: Training,
    data: Data,
    checkpoints: Checkpoints | None,
) -> tuple[Tensor, dict[str, float]]:
    """Like `_evaluate`, with a checkpoint if interrupted, so that training is not repeated."""
    try:
        with _evaluated(training):
            return _evaluate(run, training.step.engine, data)
    except KeyboardInterrupt:
        if checkpoints:
            resume_conditions = _checkpoint_conditions(run, training)
            checkpoints.save_at_exit(training.state_dict(), resume_conditions)
        raise
