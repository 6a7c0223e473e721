"""The trainer: from a run to its record."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from dpbench import seeds
from dpbench.data.dataset import Batch, Split
from dpbench.data.probe import probe, probe_users
from dpbench.errors import UserError
from dpbench.gradients import Engine, ForwardOptions, make_engine
from dpbench.gradients.precision import Precision, full_precision_products
from dpbench.mechanism.step import PrivateStep
from dpbench.mechanism.streams import Stream, secure, seeded
from dpbench.memory import check_measurable
from dpbench.metrics import FIT, METRICS
from dpbench.metrics.reliability import reliability
from dpbench.models.architecture import LOSSES
from dpbench.models.predict import predict
from dpbench.privacy.ledger import Ledger
from dpbench.records.digest import digest
from dpbench.records.divergence import DIVERGED
from dpbench.records.record import COVERED, Record
from dpbench.training.averaging import MovingAverage
from dpbench.training.checkpoints import Checkpoints
from dpbench.training.interrupts import between_steps
from dpbench.training.loop import Batches, Training
from dpbench.training.plan import Plan, Run, plan, privacy_statement
from dpbench.training.progress import Progress
from dpbench.training.provenance import Effort, conditions, provenance
from dpbench.training.score import NOISY_ACCURACY, noisy_accuracy
from dpbench.training.tracking import Tracking


@full_precision_products()
def fit(
    run: Run,
    data_dir: Path,
    quiet: bool = False,
    checkpoints: Checkpoints | None = None,
    tracking: Tracking | None = None,
) -> Record:
    """Train and test one run, and say what it measured and what it spent.

    A run whose parameters or gradients are no longer finite ends there. Its status, and that of a
    run whose outputs or losses are not finite, is "diverged"; its metrics are NaN, and its ledger
    holds the steps that were made. quiet: no progress bar, terminal or not. checkpoints: where to
    go on from and put the run away in the meantime, if anywhere; the record says the same whether
    it was interrupted or not. tracking: hears of every epoch.
    """
    planned = plan(run)
    device = pick_device(run.device)
    if run.physical_batch_size == "auto":
        check_measurable(device)
    effort = Effort(device)
    data = run.load(data_dir)
    examples, test = data.train.to(device), data.test.to(device)
    training = _resumed(
        run, lambda: start_training(run, planned, device, examples, test, copy(effort)), checkpoints
    )
    _train(run, training, quiet, checkpoints, tracking)
    outputs, metrics = _evaluate_or_save(run, training, examples, test, data.tested_on, checkpoints)
    ledger, score = _scored(run, planned, training, outputs, test)
    finite = bool(outputs.isfinite().all()) and math.isfinite(metrics[f"{data.tested_on}/loss"])
    sound = training.sound and finite
    classes = run.dataset.task == "classification"
    return Record(
        config=run.config,
        metrics=(metrics if sound else dict.fromkeys(metrics, math.nan)) | score,
        privacy=privacy_statement(run, planned, ledger),
        provenance=provenance(training.step, device, run.precision, training.effort),
        status="complete" if sound else DIVERGED,
        history=training.history,
        diagnostics=training.observer.series() if training.observer else {},
        calibration=reliability(outputs, test.targets) if sound and classes else {},
        covered=COVERED,
    )


def _scored(
    run: Run, planned: Plan, training: Training, outputs: Tensor, test: Split
) -> tuple[Ledger, dict[str, float]]:
    """The ledger of the whole run, and the noisy accuracy if one is asked for: of every run, since
    that its metrics are not finite is not released."""
    if planned.score is None or run.score_noise_multiplier is None:
        return training.ledger, {}
    noise = stream(run, "score", torch.device("cpu"))
    score = noisy_accuracy(outputs, test.targets, run.score_noise_multiplier, noise)
    return training.ledger.after(planned.score), {NOISY_ACCURACY: score}


def _evaluate(
    run: Run, engine: Engine, examples: Split, test: Split, tested_on: str
) -> tuple[Tensor, dict[str, float]]:
    """Outputs [n, K] for the test set, and the metrics of both sets."""
    task, names = run.dataset.task, run.dataset.groups
    outputs, losses = predict(engine.model, engine.loss, test)
    tested = METRICS[task](outputs, losses, test.targets, test.groups, names)
    fitted = FIT[task](
        *predict(engine.model, engine.loss, examples), examples.targets, examples.groups, names
    )
    on_test = {f"{tested_on}/{name}": value for name, value in tested.items()}
    return outputs, on_test | {f"train_set/{name}": value for name, value in fitted.items()}


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        probe = torch.zeros(1, device=name)
        probe.item()  # which `meta` and its like do not have
        return probe.device
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"device={name!s:.60} is not available here; try device=auto.") from error


def private_step(run: Run, planned: Plan, device: torch.device) -> PrivateStep:
    """The private step of a run, its model freshly initialised from the run's seed."""
    views = run.augmentation.views if run.augmentation else 1
    made_up = _probe_batch(run, planned, views).each(lambda t: t.to(device))
    loss, physical = LOSSES[run.dataset.task], run.physical_batch_size
    options = ForwardOptions(Precision(run.precision), run.channels_last)
    engine = make_engine(run.engine, _model(run, device), loss, made_up, views, options)
    step = PrivateStep(
        engine=engine,
        method=planned.method,
        optimizer=run.optimizer([engine.parameters.theta]),
        noise_multiplier=planned.noise_multiplier,
        expected_batch_size=planned.sampler.expected_batch_size,
        physical_batch_size=physical if isinstance(physical, int) else None,
        steps=planned.steps,
        schedule=planned.schedule,
        seed=run.seed,
        noise=stream(run, "noise", device),
        counts=stream(run, "counts", device),
    )
    if physical == "auto" and not planned.method.whole_batches:
        step.adapt(made_up)
    return step


def stream(run: Run, purpose: str, device: torch.device) -> Stream:
    """The run's random stream for one purpose, which no other run has."""
    if run.noise == "secure":
        return secure()
    return seeded(purpose, run.seed, digest(run.config) if run.config else "", device)


def _probe_batch(run: Run, planned: Plan, views: int) -> Batch:
    if run.users:
        return probe_users(run.dataset, max(planned.units.sizes))
    return probe(run.dataset, views)


def _model(run: Run, device: torch.device) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seeds.derived(run.seed, "initial weights"))
        return run.model.build(run.dataset.shape, run.dataset.classes).to(device)


def start_training(
    run: Run, planned: Plan, device: torch.device, examples: Split, test: Split, effort: Effort
) -> Training:
    """The training of a run from its start."""
    step = private_step(run, planned, device)
    theta = step.engine.parameters.theta
    observer = run.diagnostics.observer(step, examples, test) if run.diagnostics else None
    train = run.users.of(examples, run.seed) if run.users else examples
    return Training(
        plan=planned,
        step=step,
        batches=Batches(
            planned.sampler,
            train,
            run.augmentation,
            stream(run, "batches", torch.device("cpu")),
            seeds.generator(run.seed, "augmentation", examples.device),
        ),
        observer=observer,
        average=None if run.ema_decay is None else MovingAverage(run.ema_decay, theta),
        effort=effort,
    )


def _checkpoint_conditions(run: Run, step: PrivateStep) -> dict:
    """What a run must agree in, to go on from a checkpoint of its own."""
    asked = {name: getattr(run, name) for name in ("physical_batch_size", "channels_last")}
    return conditions(step.engine.name, step.engine.parameters.theta.device) | asked


def _resumed(run: Run, make: Callable[[], Training], checkpoints: Checkpoints | None) -> Training:
    """The training after the last checkpoint that agrees and fits, or else from the start."""
    training: Training | None = make()
    assert training
    if checkpoints is None:
        return training

    def load(state: dict) -> None:
        nonlocal training
        # One that cannot be loaded may be loaded in part: nobody is to go on from there.
        begun, training = training or make(), None
        begun.load_state_dict(state)
        training = begun

    checkpoints.resume_from_last(_checkpoint_conditions(run, training.step), load)
    return training or make()


def _train(
    run: Run,
    training: Training,
    quiet: bool,
    checkpoints: Checkpoints | None,
    tracking: Tracking | None,
) -> None:
    """Make all steps that are left."""
    agreed = _checkpoint_conditions(run, training.step)
    progress = Progress(training.plan, run.privacy.delta, quiet, training.steps_done)
    with between_steps() as interrupted, progress:
        for _ in training:
            progress.advance()
            if training.between_epochs:
                progress.show_loss(training.history["train/loss"][-1])
                if tracking:
                    tracking.end_of_epoch(training.history)
            if checkpoints and checkpoints.due():
                checkpoints.save(training.state_dict(), agreed)
            if interrupted():
                break
        if checkpoints and interrupted():
            checkpoints.save_at_exit(training.state_dict(), agreed)


def _evaluate_or_save(
    run: Run,
    training: Training,
    examples: Split,
    test: Split,
    tested_on: str,
    checkpoints: Checkpoints | None,
) -> tuple[Tensor, dict[str, float]]:
    """As `_evaluate`; whoever is interrupted here need not train again."""
    try:
        with training.average.in_place() if training.average else nullcontext():
            return _evaluate(run, training.step.engine, examples, test, tested_on)
    except KeyboardInterrupt:
        if checkpoints:
            conditions_now = _checkpoint_conditions(run, training.step)
            checkpoints.save_at_exit(training.state_dict(), conditions_now)
        raise
