"""What a run is, and what follows from it before any data is read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from dpbench.data.dataset import Data, Dataset, vocabulary_of
from dpbench.data.derive.augmentation import ShiftsFlips
from dpbench.data.derive.normalization import Normalization
from dpbench.data.derive.users import Units, Users, units_of
from dpbench.diagnostics import Diagnostics
from dpbench.diagnostics.settings import check_groups
from dpbench.errors import UserError
from dpbench.gradients import ENGINES, Parameters
from dpbench.gradients.precision import PRECISIONS
from dpbench.mechanism.method import Method
from dpbench.mechanism.sampling import SAMPLERS, Sampler
from dpbench.mechanism.schedules import UNCHANGED, Schedules
from dpbench.models.architecture import Architecture
from dpbench.privacy.accountants import CLAIMS
from dpbench.privacy.ledger import Ledger, Step
from dpbench.training.budget import ARITHMETIC, Privacy, planned_ledger, statement
from dpbench.training.score import SCORE_NOTE, score_step
from dpbench.validate import boolean, fraction, integer, one_of, quoted, typed

MOST_STEPS = 5_000_000
"""Of a run: hours of the smallest model, and what a schedule is looked through for in seconds."""


@dataclass(frozen=True)
class Run:
    """All that makes a run: values that were checked, and nothing read yet.

    optimizer maps a list of parameters to a torch optimiser. noise: "seeded", so that the same run
    draws the same again, or "secure". config is the plain configuration that the record keeps.
    score_noise_multiplier: of the accuracy on the validation split, see dpbench.training.score.
    trial: sets runs of one configuration apart, which then share no noise. claimed_by: what the
    paper accounts by, if the run is of one.
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
    normalization: Normalization | None = None
    augmentation: ShiftsFlips | None = None
    ema_decay: float | None = None
    schedule: Schedules | None = None
    users: Users | None = None
    noise: str = "seeded"
    score_noise_multiplier: float | None = None
    trial: str | None = None
    claimed_by: str = "rdp"
    config: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        integer("epochs", self.epochs)
        integer("batch_size", self.batch_size)
        if isinstance(self.physical_batch_size, str):
            one_of("physical_batch_size", self.physical_batch_size, ["auto"])
        elif self.physical_batch_size is not None:
            integer("physical_batch_size", self.physical_batch_size)
        if self.ema_decay is not None:
            fraction("ema_decay", self.ema_decay, zero=True)
        one_of("sampler", self.sampler, SAMPLERS)
        one_of("table.claimed_by", self.claimed_by, CLAIMS)
        one_of("precision", self.precision, PRECISIONS)
        one_of("noise", self.noise, ARITHMETIC)
        typed("trial", self.trial, str | None)
        boolean("channels_last", self.channels_last)
        one_of("engine", self.engine, ["auto", *ENGINES])
        integer("seed", self.seed, least=0)
        if not isinstance(self.device, str):
            raise UserError(f"device={quoted(self.device)} is no device: try auto, or cuda:0.")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the data, as what of it no epsilon covers."""
        scored = [SCORE_NOTE] if self.score_noise_multiplier else []
        normalized = [self.normalization.note] if self.normalization else []
        return (*self.dataset.notes, *scored, *normalized)

    def load(self, folder: Path) -> Data:
        """What is trained and tested on, read below `folder`, or downloaded to it."""
        data = self.dataset.load(folder, self.seed)
        return self.normalization.of(data) if self.normalization else data


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
    score: Step | None = None  # what is released of the validation split, after the last step

    @property
    def step(self) -> Step:
        """The first step."""
        return self.at(self.noise_multiplier * self.schedule.noise_at(0.0))

    def at(self, noise_multiplier: float) -> Step:
        """A step with so much noise."""
        return Step(self.sampler.law, self.method.releases(noise_multiplier))


def plan(run: Run) -> Plan:
    """Settle everything that can be settled before data is read; UserError for what cannot be."""
    optimizer, size, layers = _check_parts(run)
    method = run.method.on(run.dataset, run.users).for_size(size).for_layers(layers)
    units = units_of(run.dataset, run.users)
    sampler = SAMPLERS[run.sampler](units.number, run.batch_size, units.name)
    steps = _steps(run, sampler)
    score = score_step(run)
    if method.private:
        run.privacy.warn_if_weak(units)
    schedule = run.schedule or UNCHANGED
    schedule.check(steps)
    if schedule.bound != 1:
        factors = [schedule.bound_at(made / steps) for made in range(steps)]
        for factor in (min(factors), max(factors)):
            method.clip.scaled(factor)  # which refuses where no schedule can move its bound so far
    if method.noise_rule:
        schedule = method.noise_rule.schedule(schedule, steps)
        follows = method.noise_rule.multiplier(
            method.clip, optimizer, sampler.expected_batch_size, units
        )
        multiplier = run.privacy.confirmed_multiplier(
            follows, method, sampler.law, steps, schedule, score
        )
    else:
        multiplier = run.privacy.multiplier(method, sampler.law, steps, schedule, score)
    ledger = planned_ledger(method, sampler.law, steps, multiplier, schedule, score)
    if method.whole_batches and run.physical_batch_size not in (None, "auto"):
        raise UserError(
            f"{method.name} needs each batch in one piece; leave physical_batch_size unset."
        )
    planned = Plan(method, units, sampler, steps, multiplier, schedule, ledger, score)
    # What no accountant can tell is refused now, and not after the training.
    privacy_statement(run, planned)
    return planned


def _steps(run: Run, sampler: Sampler) -> int:
    """How many steps a run makes; UserError for more than anybody waits for."""
    steps = run.epochs * sampler.steps_per_epoch
    if steps > MOST_STEPS:
        raise UserError(
            f"epochs={run.epochs} are {steps} steps of about {run.batch_size} {sampler.law.unit}s, "
            f"and a run has at most {MOST_STEPS}: choose fewer epochs or a larger batch_size."
        )
    return steps


def privacy_statement(run: Run, planned: Plan, ledger: Ledger | None = None) -> dict:
    """What can be said of a run's epsilon, as planned or by the ledger of the steps it made."""
    return statement(
        planned.ledger if ledger is None else ledger,
        planned.method,
        run.privacy.delta,
        planned.noise_multiplier,
        run.noise,
        run.claimed_by,
    )


def _check_parts(run: Run) -> tuple[torch.optim.Optimizer, int, list[str]]:
    """The optimiser as configured, of one parameter; how many parameters are trained, and in which
    layers.

    Takes no memory and no random numbers. UserError for parts that do not fit or cannot be made.
    """
    if run.users and (run.augmentation or run.diagnostics):
        raise UserError(
            "augmentation and diagnostics are of single examples, and users have several: set "
            "augmentation=none diagnostics=none, or users=none."
        )
    for change in (run.normalization, run.augmentation):
        if change:
            change.check(run.dataset)
    _check_texts(run)
    if (groups := getattr(run.diagnostics, "groups", None)) is not None:
        check_groups(groups, len(run.dataset.groups))
    try:
        with torch.device("meta"):
            model = run.model.build(run.dataset.shape, run.dataset.classes)
            parameters = Parameters(model)
        layers = [layer.name for layer in parameters.layers]
        run.method.clip.for_layers(layers)  # which refuses bounds of other layers
        alone = nn.Parameter(torch.zeros(1))
        alone.grad = torch.zeros(1)
        optimizer = run.optimizer([alone])
        optimizer.step()
        return optimizer, len(parameters), layers
    except (TypeError, ValueError, RuntimeError, AssertionError, OverflowError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
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
