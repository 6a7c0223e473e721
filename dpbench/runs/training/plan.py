"""What follows from the settings of a run before any data is read: its plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from dpbench.learning.data.dataset import (
    calibration_size_of,
    has_pairs,
    has_random_size,
    padding_of,
    vocabulary_of,
)
from dpbench.learning.data.derive.users import Units, units_of
from dpbench.learning.models.architecture import check_module
from dpbench.privacy.ledger import Ledger, Step, query
from dpbench.privacy.statement import Statement
from dpbench.runs.diagnostics.observer import check_groups
from dpbench.runs.training.accounting import statement
from dpbench.runs.training.budget import PlannedSteps
from dpbench.runs.training.class_weights import check_class_weights
from dpbench.runs.training.conformal import PrivateConformal
from dpbench.runs.training.run import Run
from dpbench.runs.training.score import score_steps
from dpbench.runs.training.statistics import PrivateStatistics, statistics_steps
from dpbench.runs.training.temperature import PrivateTemperature
from dpbench.step.clipping import Problem
from dpbench.step.gradients import Layout
from dpbench.step.gradients.precision import check_defaults, in_full_precision
from dpbench.step.mechanism.eager import eager_step, leave_out_compiler
from dpbench.step.mechanism.method import Inapplicable, Method
from dpbench.step.mechanism.sampling import Sampler, make_sampler
from dpbench.step.mechanism.schedules import UNCHANGED, Schedules
from dpbench.system.errors import UserError, first_line

MAX_STEPS = 5_000_000
"""The most steps of a run: hours for the smallest model, and seconds to check a schedule."""


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


@in_full_precision
def plan(run: Run) -> Plan:
    """Check and derive all that is possible without data; UserError for invalid settings."""
    optimizer, layout = check_parts(run)
    units = units_of(run.dataset, run.users)
    sampler = _sampler(run, units, run.method)
    steps = _steps(run, sampler)
    layers = tuple(layer.name for layer in layout.layers)
    shapes = tuple(parameter.shape for parameter in layout.named.values())
    about = steps, sampler.steps_per_epoch, shapes
    method = run.method.bind(Problem(run.dataset, units, layers, len(layout), *about))
    if method.whole_batches and run.physical_batch_size not in (None, "auto"):
        raise UserError(
            f"{method.name} needs each batch in one piece; leave physical_batch_size unset."
        )
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
    ledger, counted = Ledger(), run.class_count_noise_multiplier
    for step in (
        *statistics_steps(run.normalization, run.dataset, run.users, run.privacy.delta),
        *([query("sizes of the classes", counted)] if counted is not None else []),
        *score_steps(run.score_noise_multiplier, run.dataset, run.users, run.method),
        *_fit_steps(run, "temperature", run.temperature),
        *_fit_steps(run, "conformal", run.conformal),
    ):
        ledger = ledger.after(step)
    return ledger


def _fit_steps(
    run: Run, group: str, fit: PrivateTemperature | PrivateConformal | None
) -> tuple[Step, ...]:
    """The steps of a fit to training examples that are held out, for the ledger; none where there
    is no fit. group: that of its settings.

    They are composed with the training steps, although an example is only in one of the two parts:
    the ledger does not distinguish parts. UserError for a run without classes or without noise, for
    users, who have several examples, and for too few held-out examples.
    """
    if fit is None:
        return ()
    name = run.dataset.name
    if run.dataset.task != "classification":
        raise UserError(
            f"{group}=private needs the logits of classes, and {name} is "
            f"a {run.dataset.task.replace('_', ' ')}: set {group}=none."
        )
    if run.users or not run.method.private:
        raise UserError(
            f"{group}=private requires private runs of single examples: set users=none and a "
            f"method that adds noise, or {group}=none."
        )
    if (size := calibration_size_of(run.dataset)) < fit.least_size:
        raise UserError(
            f"{group}.share={fit.share:g} holds out {size} examples of {name}, and its noise needs "
            f"{fit.least_size}: choose a larger share, a smaller {group}.noise_multiplier, or "
            f"{group}=none."
        )
    if isinstance(fit, PrivateTemperature):
        fit.check(run.dataset)
    return (fit.step,) * fit.steps


def _sampler(run: Run, units: Units, method: Method) -> Sampler:
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
    schedule.check(steps)
    if schedule.bound != 1:
        factors = [schedule.bound_at(step / steps) for step in range(steps)]
        for factor in (min(factors), max(factors)):
            method.clip.scaled(factor)


def _steps(run: Run, sampler: Sampler) -> int:
    steps = run.epochs * sampler.steps_per_epoch
    if steps > MAX_STEPS:
        raise UserError(
            f"epochs={run.epochs} are {steps} steps of about {run.batch_size} {sampler.law.unit}s, "
            f"and a run has at most {MAX_STEPS}: choose fewer epochs or a larger batch_size."
        )
    return steps


def privacy_statement(run: Run, planned: Plan, ledger: Ledger | None = None) -> Statement:
    """The privacy statement of a run, as planned or for the ledger of the steps it took."""
    return statement(
        planned.ledger if ledger is None else ledger,
        planned.method,
        run.privacy.delta,
        planned.noise_multiplier,
        run.noise,
        run.paper_accountant,
        run.zero_out,
        run.notes,
        run.facts,
    )


@in_full_precision
def check_parts(run: Run) -> tuple[torch.optim.Optimizer, Layout]:
    """The configured optimiser for one dummy parameter, and the layout of the trained parameters.
    Uses no memory and no random numbers. Raises UserError for parts that do not fit together or
    cannot be built."""
    if run.users and (run.augmentation or run.diagnostics):
        raise UserError(
            "augmentation and diagnostics are per example, and users have several examples: set "
            "augmentation=none diagnostics=none, or users=none."
        )
    for transform in (run.normalization, run.augmentation):
        if transform and not isinstance(transform, PrivateStatistics):
            transform.check(run.dataset)
    _check_texts(run)
    counted = run.class_count_noise_multiplier
    check_class_weights(run.class_weights, counted, run.dataset, run.users, run.method)
    _check_diagnostics(run)
    with _building("model"):
        with torch.device("meta"):
            model = run.model.build(run.dataset.shape, run.dataset.classes)
        check_defaults()  # as building may change them
        check_module(model)
        layout = Layout(model)
    with _building("optimizer"):
        leave_out_compiler()
        dummy = nn.Parameter(torch.zeros(1))
        dummy.grad = torch.zeros(1)
        optimizer = run.optimizer([dummy])
        eager_step(optimizer)
    return optimizer, layout


def _check_diagnostics(run: Run) -> None:
    """UserError for groups that there are not, and for gradients that the method does not have."""
    if (groups := getattr(run.diagnostics, "groups", None)) is not None:
        check_groups(groups, len(run.dataset.groups))
    name, measures_gradients = run.method.name, getattr(run.diagnostics, "of_gradients", False)
    if measures_gradients and not run.method.gradient.of_parameters:
        why = f"{name} clips no gradients, which these diagnostics measure: set diagnostics=none."
        raise Inapplicable(name, why)


@contextmanager
def _building(part: str) -> Iterator[None]:
    """Turns what constructors raise, whose types they do not document, into a UserError."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, AssertionError, OverflowError) as error:
        why = first_line(error, type(error).__name__)
        raise UserError(f"{part} cannot be built: {why}") from error


def _check_texts(run: Run) -> None:
    """UserError for texts and a model without texts, of fewer tokens, or with other padding; and
    for a language model and another task, or the reverse."""
    learns, asked = getattr(run.model, "task", ""), run.dataset.task
    if learns != asked and "language_model" in (learns, asked):
        raise UserError(
            "a language model predicts the next words of texts: model=causal_lm and gpt2_tiny need "
            "dataset.task=language_model, and no other model has it."
        )
    if learns == "language_model" and run.head_lr_factor is not None:
        raise UserError("a language model gets no new head: leave out head_lr_factor.")
    tokens, vocabulary = vocabulary_of(run.dataset), getattr(run.model, "vocabulary", None)
    if tokens is None:
        return
    if vocabulary is None or vocabulary < tokens:
        limit = "takes no texts" if vocabulary is None else f"has only {vocabulary}"
        raise UserError(
            f"{run.dataset.name} has texts of {tokens} tokens and this model {limit}: use "
            "model=text, bert_base or bert_tiny, or features=minilm for other models."
        )
    ours, theirs = padding_of(run.dataset), getattr(run.model, "padding", 0)
    if theirs is not None and ours != theirs:
        raise UserError(
            f"{run.dataset.name} has texts padded by token {ours} and this model expects {theirs}: "
            "use the tokenizer that the model was published with."
        )
    if getattr(run.model, "pairs", "") == "bi_encoder" and not has_pairs(run.dataset):
        raise UserError(
            f"model.pairs=bi_encoder needs pairs of texts, and {run.dataset.name} has single ones: "
            "leave it out."
        )
