"""The settings of a run, and the plan that follows from them before any data is read."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from dpbench.config.settings import check_compute, check_numbers
from dpbench.data.dataset import Data, Dataset, check_loaded, has_random_size, vocabulary_of
from dpbench.data.derive.augmentation import ShiftsFlips
from dpbench.data.derive.normalization import Normalization, with_transform
from dpbench.data.derive.users import Units, Users, units_of
from dpbench.diagnostics import Diagnostics
from dpbench.diagnostics.settings import check_groups
from dpbench.errors import UserError, first_line
from dpbench.gradients import ENGINES, Layout
from dpbench.gradients.precision import PRECISIONS
from dpbench.mechanism.eager import eager_step, leave_out_compiler
from dpbench.mechanism.method import Method
from dpbench.mechanism.sampling import SAMPLERS, Sampler, make_sampler
from dpbench.mechanism.schedules import UNCHANGED, Schedules
from dpbench.mechanism.streams import Stream, secure, seeded
from dpbench.models.architecture import Architecture
from dpbench.privacy.accountants import CLAIMS
from dpbench.privacy.guarantee import DEFAULT_CLAIM
from dpbench.privacy.ledger import Ledger, Step
from dpbench.records.digest import digest
from dpbench.seeds import derived, seed_torch, torch_state_kept
from dpbench.training.budget import ARITHMETIC, PlannedSteps, Privacy, statement
from dpbench.training.score import SCORE_NOTE, score_steps
from dpbench.training.statistics import PrivateNormalization, statistics_steps
from dpbench.training.temperature import PrivateTemperature, temperature_steps
from dpbench.validate import one_of, typed

MAX_STEPS = 5_000_000
"""The most steps of a run: hours for the smallest model, and seconds to check a schedule."""


@dataclass(frozen=True)
class Run:
    """The checked settings of a run; no data is read yet.

    optimizer maps a list of parameters to a torch optimiser. noise: "seeded" (reproducible) or
    "secure". config: the plain configuration stored in the record; without it all runs of one seed
    share their seeded noise, and at most one may be released; so does one that
    `dataclasses.replace` makes of another, whose config it keeps. score_noise_multiplier: of the
    accuracy on the validation split, see dpbench.training.score. trial: distinguishes runs of one
    configuration, which then share no noise. temperature: fitted on the part that the data set
    holds out for it. batch_limit, participations: settings of two samplers, see
    dpbench.mechanism.sampling. paper_accountant: of the paper that the run reproduces, if any.
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
    normalization: Normalization | PrivateNormalization | None = None
    augmentation: ShiftsFlips | None = None
    ema_decay: float | None = None
    schedule: Schedules | None = None
    users: Users | None = None
    noise: str = "seeded"
    score_noise_multiplier: float | None = None
    trial: str | None = None
    temperature: PrivateTemperature | None = None
    batch_limit: int | None = None
    participations: int | None = None
    paper_accountant: str = DEFAULT_CLAIM
    config: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(vars(self))
        check_compute(vars(self))
        one_of("sampler", self.sampler, SAMPLERS)
        one_of("table.claimed_by", self.paper_accountant, CLAIMS)
        one_of("precision", self.precision, PRECISIONS)
        one_of("noise", self.noise, ARITHMETIC)
        typed("trial", self.trial, str | None)
        one_of("engine", self.engine, ["auto", *ENGINES])

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data for readers, such as what no epsilon covers."""
        scored = [SCORE_NOTE] if self.score_noise_multiplier else []
        constants = [self.normalization.note] if self.normalization else []
        return (*self.dataset.notes, *scored, *constants)

    @property
    def zero_out(self) -> bool:
        """Whether adjacency leaves the place of a removed example empty.

        Epsilon then covers examples that are trained on and examples that are held out. The seed
        assigns places to one or the other, so without the place all others would be assigned anew.
        """
        return self.score_noise_multiplier is not None or self.temperature is not None

    def load(self, folder: Path) -> Data:
        """The training and test sets, read from below `folder` or downloaded to it."""
        data = self._loaded(folder)
        match self.normalization:
            case None:
                return data
            case PrivateNormalization() as statistics:
                noise = self.stream("statistics", torch.device("cpu"))
                measured = statistics.measured(data.train, self.dataset.train_size, noise)
                return with_transform(data, measured)
            case public:
                return with_transform(data, public)

    def _loaded(self, folder: Path) -> Data:
        """The data set's data; UserError for files that lack the expected columns or values."""
        try:
            data = self.dataset.load(folder, self.seed)
        except (LookupError, ValueError) as error:
            raise UserError(
                f"the data of {self.dataset.name} cannot be read from {folder}: "
                f"{type(error).__name__}: {first_line(error)}."
            ) from error
        check_loaded(self.dataset, data)
        return data

    def initial_model(self, device: torch.device) -> nn.Module:
        """The model with the initial weights of the seed, on a device."""
        with torch_state_kept(device):
            seed_torch(derived(self.seed, "initial weights"), device)
            return self.model.build(self.dataset.shape, self.dataset.classes).to(device)

    def draws_seed(self) -> int:
        """The seed of the draws inside a step: augmentation, dropout, and those of the method.

        Shared with no other run, if the run has a configuration: an additional example changes the
        draws of others, which would show in the difference of two runs with the same draws. With
        secure noise it is a secret, different in each call.
        """
        if self.noise == "secure":
            return secrets.randbits(63)
        return derived(self.seed, f"draws/{digest(self.config)}") if self.config else self.seed

    def stream(self, purpose: str, device: torch.device) -> Stream:
        """The random stream for one purpose, shared with no other run."""
        if self.noise == "secure":
            return secure()
        return seeded(purpose, self.seed, digest(self.config) if self.config else "", device)


@dataclass(frozen=True)
class Plan:
    """What follows from a run's settings without reading data: batches, steps, noise, ledger."""

    method: Method
    units: Units
    sampler: Sampler
    steps: int
    noise_multiplier: float
    schedule: Schedules
    ledger: Ledger  # of all planned steps, and of what is released once
    once: Ledger  # of what is released once, before the first step or after the last

    def spent(self, steps: int) -> Ledger:
        """The ledger of the first steps and of all that is released once, even if at the end."""
        return self.ledger.first(steps).then(self.once)

    @property
    def step(self) -> Step:
        """The first step."""
        return self.at(self.noise_multiplier * self.schedule.noise_at(0.0))

    def at(self, noise_multiplier: float) -> Step:
        """The ledger's step for a noise multiplier."""
        return Step(self.sampler.law, self.method.releases(noise_multiplier))


def plan(run: Run) -> Plan:
    """Check and derive all that is possible without data; UserError for invalid settings."""
    optimizer, size, layers = _check_parts(run)
    method = run.method.on(run.dataset, run.users).for_size(size).for_layers(layers)
    units = units_of(run.dataset, run.users)
    sampler = _sampler(run, units, method)
    steps = _steps(run, sampler)
    method = method.for_run(steps, sampler.steps_per_epoch)
    once = _released_once(run)
    if method.private:
        run.privacy.warn_if_weak(units)
    schedule = run.schedule or UNCHANGED
    _check_schedule(schedule, method, steps)
    if method.noise_rule:
        schedule = method.noise_rule.schedule(schedule, steps)
    planned_steps = PlannedSteps(method, sampler.law, steps, schedule, once)
    if method.noise_rule:
        implied = method.noise_rule.multiplier(
            method.clip, optimizer, sampler.expected_batch_size, units
        )
        multiplier = run.privacy.confirmed_multiplier(implied, planned_steps)
    else:
        multiplier = run.privacy.multiplier(planned_steps)
    ledger = planned_steps.ledger(multiplier)
    planned = Plan(method, units, sampler, steps, multiplier, schedule, ledger, once)
    # Raises Unaccountable now instead of after the training.
    privacy_statement(run, planned)
    return planned


def _released_once(run: Run) -> Ledger:
    """The ledger of what a run releases once, besides its steps."""
    ledger = Ledger()
    for step in (
        *statistics_steps(run.normalization, run.users),
        *score_steps(run.score_noise_multiplier, run.dataset, run.users, run.method),
        *temperature_steps(run.temperature, run.dataset, run.users, run.method),
    ):
        ledger = ledger.after(step)
    return ledger


def _sampler(run: Run, units: Units, method: Method) -> Sampler:
    """The sampler of a run; UserError for a method that its batches do not suit."""
    if method.whole_batches and run.physical_batch_size not in (None, "auto"):
        raise UserError(
            f"{method.name} needs each batch in one piece; leave physical_batch_size unset."
        )
    if run.sampler == "truncated" and has_random_size(run.dataset) and not run.users:
        # Its account needs an upper bound, which half of the draws exceed; and to refuse those by
        # the data would tell two neighbours apart.
        raise UserError(
            f"sampler=truncated needs the number of training examples, and for {run.dataset.name} "
            f"only its expectation of {run.dataset.train_size} is public: use sampler=poisson."
        )
    return make_sampler(
        run.sampler,
        units.number,
        run.batch_size,
        units.name,
        method.noise.bands,
        batch_limit=run.batch_limit,
        participations=run.participations,
    )


def _check_schedule(schedule: Schedules, method: Method, steps: int) -> None:
    """UserError for an invalid schedule, or one that takes a bound out of its range."""
    schedule.check(steps)
    if schedule.bound != 1:
        factors = [schedule.bound_at(step / steps) for step in range(steps)]
        for factor in (min(factors), max(factors)):
            method.clip.scaled(factor)


def _steps(run: Run, sampler: Sampler) -> int:
    """The number of steps of a run; UserError above MAX_STEPS."""
    steps = run.epochs * sampler.steps_per_epoch
    if steps > MAX_STEPS:
        raise UserError(
            f"epochs={run.epochs} are {steps} steps of about {run.batch_size} {sampler.law.unit}s, "
            f"and a run has at most {MAX_STEPS}: choose fewer epochs or a larger batch_size."
        )
    return steps


def privacy_statement(run: Run, planned: Plan, ledger: Ledger | None = None) -> dict:
    """The privacy statement of a run, as planned or for the ledger of the steps it took."""
    by_ledger = statement(
        planned.ledger if ledger is None else ledger,
        planned.method,
        run.privacy.delta,
        planned.noise_multiplier,
        run.noise,
        run.paper_accountant,
        run.zero_out,
    )
    return by_ledger | {"notes": [*run.notes]}


def _check_parts(run: Run) -> tuple[torch.optim.Optimizer, int, list[str]]:
    """The configured optimiser for one dummy parameter, the number of trained parameters, and the
    names of their layers.

    Uses no memory and no random numbers. Raises UserError for parts that do not fit together or
    cannot be built.
    """
    if run.users and (run.augmentation or run.diagnostics):
        raise UserError(
            "augmentation and diagnostics are per example, and users have several examples: set "
            "augmentation=none diagnostics=none, or users=none."
        )
    for transform in (run.normalization, run.augmentation):
        if transform:
            transform.check(run.dataset)
    _check_texts(run)
    if (groups := getattr(run.diagnostics, "groups", None)) is not None:
        check_groups(groups, len(run.dataset.groups))
    with _building("model"):
        with torch.device("meta"):
            model = run.model.build(run.dataset.shape, run.dataset.classes)
        layout = Layout(model)
        layers = [layer.name for layer in layout.layers]
        run.method.clip.for_layers(layers)  # raises UserError for bounds of other layers
    with _building("optimizer"):
        leave_out_compiler()
        dummy = nn.Parameter(torch.zeros(1))
        dummy.grad = torch.zeros(1)
        optimizer = run.optimizer([dummy])
        eager_step(optimizer)
    return optimizer, len(layout), layers


@contextmanager
def _building(part: str) -> Iterator[None]:
    """Turns what constructors raise, whose types they do not document, into a UserError."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, AssertionError, OverflowError) as error:
        why = first_line(error, type(error).__name__)
        raise UserError(f"{part} cannot be built: {why}") from error


def _check_texts(run: Run) -> None:
    """UserError for texts and a model that does not take texts, or has a smaller vocabulary."""
    tokens, vocabulary = vocabulary_of(run.dataset), getattr(run.model, "vocabulary", None)
    if tokens is not None and (vocabulary is None or vocabulary < tokens):
        limit = "takes no texts" if vocabulary is None else f"has only {vocabulary}"
        raise UserError(
            f"{run.dataset.name} has texts of {tokens} tokens and this model {limit}: use "
            "model=bert_base or bert_tiny."
        )
