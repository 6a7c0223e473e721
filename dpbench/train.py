"""The trainer: from a run to its record."""

import math
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from dpbench import seeds
from dpbench.averaging import MovingAverage, proper_decay
from dpbench.checkpoints import Checkpoints
from dpbench.data.augmentation import ShiftsFlips
from dpbench.data.dataset import Batch, Dataset, Split, vocabulary_of
from dpbench.data.probe import probe, probe_users
from dpbench.data.users import Units, Users, units_of
from dpbench.diagnostics import Diagnostics
from dpbench.errors import UserError, nearest
from dpbench.gradients import ENGINES, How, Parameters, make_engine
from dpbench.ledger import Ledger, Step
from dpbench.memory import check_measurable
from dpbench.methods.method import Method
from dpbench.metrics import METRICS
from dpbench.metrics.reliability import reliability
from dpbench.models.architecture import LOSSES, Architecture
from dpbench.precision import PRECISIONS, Precision, full_products
from dpbench.prediction import predict
from dpbench.privacy import Privacy, planned_ledger, statement
from dpbench.progress import Progress
from dpbench.provenance import Effort, conditions, provenance
from dpbench.results import Record
from dpbench.sampling import SAMPLERS, Sampler
from dpbench.schedules import UNCHANGED, Schedules
from dpbench.step import PrivateStep
from dpbench.training import Batches, Training

if TYPE_CHECKING:
    from dpbench.tracking import Tracking


@dataclass(frozen=True)
class Run:
    """All that makes a run: values that were checked, and nothing read yet.

    optimizer maps a list of parameters to a torch optimiser. config is the plain configuration that
    the record keeps.
    """

    dataset: Dataset
    model: Architecture
    method: Method
    privacy: Privacy
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    sampler: str
    epochs: int
    batch_size: int
    seed: int
    engine: str = "auto"
    physical_batch_size: int | str | None = None
    precision: str = "float32"
    channels_last: bool = False
    device: str = "auto"
    diagnostics: Diagnostics | None = None
    augmentation: ShiftsFlips | None = None
    ema_decay: float | None = None
    schedule: Schedules | None = None
    users: Users | None = None
    config: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole("epochs", self.epochs)
        whole("batch_size", self.batch_size)
        if isinstance(self.physical_batch_size, str):
            _one_of("physical_batch_size", self.physical_batch_size, ["auto"])
        elif self.physical_batch_size is not None:
            whole("physical_batch_size", self.physical_batch_size)
        if self.ema_decay is not None:
            proper_decay(self.ema_decay)
        _one_of("sampler", self.sampler, SAMPLERS)
        _one_of("precision", self.precision, PRECISIONS)
        if not isinstance(self.channels_last, bool):
            raise UserError(f"channels_last must be true or false, got {self.channels_last!r}.")
        _one_of("engine", self.engine, ["auto", *ENGINES])
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise UserError(f"seed must be a whole number from 0, got {self.seed!r}.")


def whole(what: str, value: object) -> None:
    """Refuse what is not a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{what} must be a whole number from 1, got {value!r}.")


def _one_of(what: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise UserError(f"{what}={value} is unknown: {nearest(str(value), known)}")


@dataclass(frozen=True)
class Plan:
    """What follows from a run without reading any data: batches, steps, noise, and the ledger."""

    method: Method
    units: Units
    sampler: Sampler
    steps: int
    noise_multiplier: float
    schedule: Schedules
    ledger: Ledger  # of the run, if it goes as planned

    @property
    def step(self) -> Step:
        """The first step."""
        return self.at(self.noise_multiplier * self.schedule.noise_at(0.0))

    def at(self, noise_multiplier: float) -> Step:
        """A step with so much noise."""
        return Step(self.sampler.law, self.method.releases(noise_multiplier))


def plan(run: Run) -> Plan:
    """Settle everything that can be settled before data is read; UserError for what cannot be."""
    optimizer, size = _check_parts(run)
    method = run.method.on(run.dataset, run.users).for_size(size)
    units = units_of(run.dataset, run.users)
    sampler = SAMPLERS[run.sampler](units.number, run.batch_size, units.name)
    steps = run.epochs * sampler.steps_per_epoch
    if method.private:
        run.privacy.warn_if_weak(units)
    schedule = run.schedule or UNCHANGED
    schedule.check(steps)
    if schedule.bound != 1:
        method.clip.scaled(2)  # which refuses where no schedule can move its bound
    if method.tie:
        schedule = method.tie.schedule(schedule, steps)
        follows = method.tie.multiplier(method.clip, optimizer, sampler.expected_batch_size, units)
        multiplier = run.privacy.agreed(follows, method, sampler.law, steps, schedule)
    else:
        multiplier = run.privacy.multiplier(method, sampler.law, steps, schedule)
    ledger = planned_ledger(method, sampler.law, steps, multiplier, schedule)
    if method.whole_batches and run.physical_batch_size not in (None, "auto"):
        raise UserError(
            f"{method.name} needs each batch in one piece; leave physical_batch_size unset."
        )
    planned = Plan(method, units, sampler, steps, multiplier, schedule, ledger)
    # What no accountant can tell is refused now, and not after the training.
    statement(planned.ledger, method, run.privacy.delta, multiplier)
    return planned


def _check_parts(run: Run) -> tuple[torch.optim.Optimizer, int]:
    """The optimiser as configured, of one parameter, and how many parameters are trained.

    Takes no memory and no random numbers. UserError for parts that do not fit or cannot be made.
    """
    if run.users and (run.augmentation or run.diagnostics):
        raise UserError(
            "augmentation and diagnostics are of single examples, and users have several: set "
            "augmentation=none diagnostics=none, or users=none."
        )
    if run.augmentation:
        run.augmentation.check(run.dataset)
    _check_texts(run)
    try:
        with torch.device("meta"):
            model = run.model.build(run.dataset.shape, run.dataset.classes)
            parameters = Parameters(model)
        layers = parameters.layers
        run.method.clip.check_layers([layer.name for layer in layers])
        alone = nn.Parameter(torch.zeros(1))
        alone.grad = torch.zeros(1)
        optimizer = run.optimizer([alone])
        optimizer.step()
        return optimizer, len(parameters)
    except (TypeError, ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"model or optimizer cannot be made: {why}") from error


def _check_texts(run: Run) -> None:
    """Refuse texts for a model that takes none, or knows fewer tokens."""
    tokens, known = vocabulary_of(run.dataset), getattr(run.model, "vocabulary", None)
    if tokens is not None and (known is None or known < tokens):
        knows = "takes no texts" if known is None else f"knows {known} tokens"
        raise UserError(
            f"{run.dataset.name} has texts of {tokens} tokens and this model {knows}: use "
            "model=bert_base or bert_tiny."
        )


@full_products()
def fit(
    run: Run,
    data_dir: Path,
    quiet: bool = False,
    checkpoints: Checkpoints | None = None,
    tracking: "Tracking | None" = None,
) -> Record:
    """Train and test one run, and say what it measured and what it spent.

    A run whose parameters stop being finite ends there. Its status, and that of a run whose outputs
    are not finite, is "diverged"; its metrics are NaN, and its ledger holds the steps that were
    made. quiet: no progress bar, terminal or not. checkpoints: where to go on from and put the run
    away in the meantime, if anywhere; the record says the same whether it was interrupted or not.
    tracking: hears of every epoch.
    """
    planned = plan(run)
    device = pick_device(run.device)
    if run.physical_batch_size == "auto":
        check_measurable(device)
    effort = Effort(device)
    data = run.dataset.load(data_dir, run.seed)
    examples, test = data.train.to(device), data.test.to(device)
    step = private_step(run, planned, device)
    training = _training(run, planned, step, examples, test, effort)
    _carry_out(run, training, quiet, checkpoints, tracking)
    with training.average.in_place() if training.average else nullcontext():
        outputs, losses = predict(step.engine, test)
    sound = training.sound and bool(outputs.isfinite().all())
    measure, classes = METRICS[run.dataset.task], run.dataset.task == "classification"
    metrics = measure(outputs, losses, test.targets, test.groups, run.dataset.groups)
    named = {f"{data.tested_on}/{k}": v if sound else math.nan for k, v in metrics.items()}
    return Record(
        config=run.config,
        metrics=named,
        privacy=statement(
            training.ledger, planned.method, run.privacy.delta, planned.noise_multiplier
        ),
        provenance=provenance(step, device, run.precision, effort),
        status="complete" if sound else "diverged",
        history=training.history,
        diagnostics=training.observer.series() if training.observer else {},
        calibration=reliability(outputs, test.targets) if sound and classes else {},
    )


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        probe = torch.zeros(1, device=name)
        probe.item()  # which `meta` and its like do not have
        return probe.device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={name} is not to be had here; try device=auto.") from error


def private_step(run: Run, planned: Plan, device: torch.device) -> PrivateStep:
    """The private step of a run, its model freshly initialised from the run's seed."""
    views = run.augmentation.views if run.augmentation else 1
    made_up = _made_up(run, planned, views).each(lambda t: t.to(device))
    loss, physical = LOSSES[run.dataset.task], run.physical_batch_size
    how = How(Precision(run.precision), run.channels_last)
    engine = make_engine(run.engine, _model(run, device), loss, made_up, views, how)
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
        noise=seeds.generator(run.seed, "noise", device),
        counts=seeds.generator(run.seed, "counts", device),
    )
    if physical == "auto" and not planned.method.whole_batches:
        step.adapt(made_up)
    return step


def _made_up(run: Run, planned: Plan, views: int) -> Batch:
    if run.users:
        return probe_users(run.dataset, max(planned.units.sizes))
    return probe(run.dataset, views)


def _model(run: Run, device: torch.device) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seeds.derived(run.seed, "initial weights"))
        return run.model.build(run.dataset.shape, run.dataset.classes).to(device)


def _training(
    run: Run, planned: Plan, step: PrivateStep, examples: Split, test: Split, effort: Effort
) -> Training:
    theta = step.engine.parameters.theta
    observer = run.diagnostics.observer(step, examples, test) if run.diagnostics else None
    train = run.users.of(examples, run.seed) if run.users else examples
    return Training(
        plan=planned,
        step=step,
        batches=Batches(planned.sampler, train, run.augmentation, run.seed),
        observer=observer,
        average=None if run.ema_decay is None else MovingAverage(run.ema_decay, theta),
        effort=effort,
    )


def _agreed(run: Run, step: PrivateStep) -> dict:
    """What a run must agree in, to go on from a checkpoint of its own."""
    asked = {name: getattr(run, name) for name in ("physical_batch_size", "channels_last")}
    return conditions(step.engine.name, step.engine.parameters.theta.device) | asked


def _carry_out(
    run: Run,
    training: Training,
    quiet: bool,
    checkpoints: Checkpoints | None,
    tracking: "Tracking | None",
) -> None:
    """Make all steps that are left after the last checkpoint, if there is one that agrees."""
    agreed = _agreed(run, training.step)
    if checkpoints and (state := checkpoints.last(agreed)):
        training.load_state_dict(state)
    with Progress(training.plan, run.privacy.delta, quiet, training.made) as progress:
        for _ in training:
            progress.advance()
            if training.between_epochs:
                progress.show_loss(training.history["train/loss"][-1])
                if tracking:
                    tracking.end_of_epoch(training.history, training.ledger)
            if checkpoints and checkpoints.due():
                checkpoints.save(training.state_dict(), agreed)
