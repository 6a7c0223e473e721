"""The trainer: from a run to its record."""

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from dpbench import seeds
from dpbench.averaging import MovingAverage, proper_decay
from dpbench.data.augmentation import ShiftsFlips
from dpbench.data.dataset import Batch, Dataset, Split, vocabulary_of
from dpbench.data.probe import probe
from dpbench.diagnostics import Diagnostics, Observer
from dpbench.errors import UserError, nearest
from dpbench.gradients import ENGINES, Engine, How, Parameters, make_engine
from dpbench.ledger import Ledger, Step
from dpbench.memory import check_measurable, halving
from dpbench.methods.method import Method
from dpbench.metrics import METRICS
from dpbench.metrics.reliability import reliability
from dpbench.models.architecture import LOSSES, Architecture
from dpbench.precision import PRECISIONS, Precision, full_products
from dpbench.privacy import Privacy, planned_ledger, statement
from dpbench.progress import Progress
from dpbench.provenance import provenance
from dpbench.results import Record
from dpbench.sampling import SAMPLERS, Sampler
from dpbench.schedules import UNCHANGED, Schedules
from dpbench.step import PrivateStep


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
    method = run.method.on(run.dataset).for_size(_check_parts(run))
    sampler = SAMPLERS[run.sampler](run.dataset.train_size, run.batch_size)
    steps = run.epochs * sampler.steps_per_epoch
    if method.private:
        run.privacy.warn_if_weak(run.dataset.train_size)
    schedule = run.schedule or UNCHANGED
    schedule.check(steps)
    if schedule.bound != 1:
        method.clip.scaled(2)  # which refuses where no schedule can move its bound
    multiplier = run.privacy.multiplier(method, sampler.law, steps, schedule)
    ledger = planned_ledger(method, sampler.law, steps, multiplier, schedule)
    if method.whole_batches and run.physical_batch_size not in (None, "auto"):
        raise UserError(
            f"{method.name} needs each batch in one piece; leave physical_batch_size unset."
        )
    planned = Plan(method, sampler, steps, multiplier, schedule, ledger)
    # What no accountant can tell is refused now, and not after the training.
    statement(planned.ledger, method, run.privacy.delta, multiplier)
    return planned


def _check_parts(run: Run) -> int:
    """How many parameters are trained; takes no memory and no random numbers.

    Raises UserError for parts that do not fit or cannot be made.
    """
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
        run.optimizer([alone]).step()
        return len(parameters)
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
def fit(run: Run, data_dir: Path, quiet: bool = False) -> Record:
    """Train and test one run, and say what it measured and what it spent.

    A run whose parameters stop being finite ends there. Its status, and that of a run whose outputs
    are not finite, is "diverged"; its metrics are NaN, and its ledger holds the steps that were
    made. quiet: no progress bar, terminal or not.
    """
    planned = plan(run)
    device = pick_device(run.device)
    if run.physical_batch_size == "auto":
        check_measurable(device)
    start = time.perf_counter()
    data = run.dataset.load(data_dir, run.seed)
    train, test = data.train.to(device), data.test.to(device)
    step = private_step(run, planned, device)
    observer = run.diagnostics.observer(step, train) if run.diagnostics else None
    average = _average(run, step)
    with Progress(planned, run.privacy.delta, quiet) as progress:
        history, ledger = _loop(run, planned, step, train, observer, average, progress)
    with average.in_place() if average else nullcontext():
        outputs, losses = predict(step.engine, test)
    sound = _finite(step) and bool(outputs.isfinite().all())
    measure, classes = METRICS[run.dataset.task], run.dataset.task == "classification"
    metrics = measure(outputs, losses, test.targets, test.groups, run.dataset.groups)
    named = {f"{data.tested_on}/{k}": v if sound else math.nan for k, v in metrics.items()}
    return Record(
        config=run.config,
        metrics=named,
        privacy=statement(ledger, planned.method, run.privacy.delta, planned.noise_multiplier),
        provenance=provenance(step, device, run.precision, time.perf_counter() - start),
        status="complete" if sound else "diverged",
        history=history,
        diagnostics=observer.series() if observer else {},
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
    made_up = probe(run.dataset, views).each(lambda t: t.to(device))
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


def _model(run: Run, device: torch.device) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seeds.derived(run.seed, "initial weights"))
        return run.model.build(run.dataset.shape, run.dataset.classes).to(device)


def _average(run: Run, step: PrivateStep) -> MovingAverage | None:
    if run.ema_decay is None:
        return None
    return MovingAverage(run.ema_decay, step.engine.parameters.theta)


def _loop(
    run: Run,
    planned: Plan,
    step: PrivateStep,
    train: Split,
    observer: Observer | None,
    average: MovingAverage | None,
    progress: Progress,
) -> tuple[dict[str, list], Ledger]:
    """All steps: the history, one entry per epoch, and the ledger of what was done."""
    batches = _batches(run, planned, train)
    history: dict[str, list] = {"train/loss": [], "train/not_finite": []}
    ledger = Ledger()
    step.engine.model.train()
    torch.manual_seed(seeds.derived(run.seed, "dropout"))
    for _ in range(run.epochs):
        reports = []
        for _ in range(planned.sampler.steps_per_epoch):
            batch = next(batches)
            if observer:
                observer.before(batch)
            made = planned.at(step.noise_multiplier)
            reports.append(step(batch))
            if average:
                average.update()
            ledger = ledger.after(made)
            progress.advance()
        losses, finite = (torch.cat(seen) for seen in zip(*reports, strict=True))
        history["train/loss"].append(losses[losses.isfinite()].mean().item())
        history["train/not_finite"].append((~finite).sum().item())
        progress.show_loss(history["train/loss"][-1])
        if observer:
            observer.end_of_epoch()
        if not _finite(step):
            break
    return history, ledger


def _batches(run: Run, planned: Plan, train: Split) -> Iterator[Batch]:
    """The batches of a run without end, each example in as many views as the engine takes."""
    device = train.targets.device
    sampling = seeds.generator(run.seed, "sampling", device)
    views = seeds.generator(run.seed, "augmentation", device)
    for indices in planned.sampler.batches(len(train), sampling):
        batch = train.at(indices)
        yield run.augmentation.of(batch, views) if run.augmentation else batch


def _finite(step: PrivateStep) -> bool:
    return bool(torch.isfinite(step.engine.parameters.theta).all())


@torch.no_grad()
def predict(engine: Engine, split: Split, batch_size: int = 4096) -> tuple[Tensor, Tensor]:
    """Outputs [n, K] and training losses [n] of all examples, by the model in test mode.

    So many at a time, or fewer where memory runs out.
    """
    engine.model.eval()

    def predicted(size: int) -> tuple[Tensor, Tensor]:
        outputs, losses = [], []
        for indices in split.batches(size):
            part = split.at(indices)
            outputs.append(engine.model(part.inputs))
            losses.append(engine.loss(outputs[-1], part.targets))
        return torch.cat(outputs), torch.cat(losses)

    return halving(predicted, batch_size)[0]
