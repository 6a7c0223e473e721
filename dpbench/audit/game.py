"""The game of an audit: a run's real training, on canaries of which half are left out at random. No
part of the run is reimplemented: its data are canaries, and its noisy sums are recorded."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from dpbench.audit.canaries import (
    Canaries,
    CanaryModel,
    CanaryUsers,
    OneHotPatterns,
    Patterns,
    WalshPatterns,
    worst_case_norm,
)
from dpbench.audit.inference import Scores
from dpbench.audit.scores import AllocationScores, MatchedFilter, ScoreAccumulator, WholeRunScores
from dpbench.audit.tradeoff import Account
from dpbench.privacy.ledger import Allocation, Ledger, Mechanism, Poisson, Step, TruncatedPoisson
from dpbench.runs.config.search_path import with_variant
from dpbench.runs.training.plan import Plan, plan
from dpbench.runs.training.progress import Progress
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.run import Run
from dpbench.runs.training.start import private_step, start_training
from dpbench.step.mechanism.step import PrivateStep, Recorder
from dpbench.step.methods.closed_form import ClosedForm
from dpbench.step.methods.dpzero import AlongDirection
from dpbench.step.methods.raco import Lagrangian
from dpbench.system.errors import UserError

COPIES = 3
"""Examples per canary, for methods in which a canary is a user."""


def check_auditable(run: Run) -> None:
    """UserError for a run without noise, for one that canaries cannot attack, and for one whose
    batches have no account."""
    if not run.method.private:
        raise UserError(f"{run.method.name} adds no noise: there is no epsilon to attack.")
    if isinstance(run.method.update, ClosedForm):
        raise UserError(
            f"the attack is on the coordinates of a gradient sum, and {run.method.name} releases "
            "moments of features, in which no canary is alone: there is no attack on it."
        )
    if isinstance(run.method.update, AlongDirection):
        raise UserError(
            f"the attack is on the coordinates of a sum, and {run.method.name} moves along one "
            "random direction, where no canary is alone: there is no attack on it."
        )
    if run.sampler == "shuffled":
        raise UserError(
            "no accountant covers shuffled batches, so there is no epsilon to attack: set "
            "sampler=poisson, truncated or allocation."
        )


def last_release(step: PrivateStep) -> tuple[Mechanism, Tensor]:
    """The mechanism of a recorded step's last release, and its noisy sum [D] in units of its
    sensitivity."""
    assert step.recorder
    noisy, multiplier = step.recorder.sums.pop()
    return step.method.releases(multiplier)[0].mechanism, noisy


@dataclass(frozen=True)
class ReleasePart:
    """One of the releases that an account covers together: its scores, and its account alone."""

    what: str
    scores: Scores
    ledger: Account


@dataclass(frozen=True)
class Game:
    """A finished game: the scores of one or more attacks, and the account of what they attack.

    attacked: the run or library, in words. delta, seed: of the audit. parts: its releases each by
    itself, where there are several: among others a release of little effect is not seen.
    """

    name: str
    attacked: str
    attacks: tuple[Scores, ...]
    ledger: Account
    delta: float
    seed: int
    parts: tuple[ReleasePart, ...] = field(default=(), kw_only=True)


def parts_of(step: Step, scores: Iterable[Scores]) -> tuple[ReleasePart, ...]:
    """The releases of a step each alone, with their scores."""
    return tuple(
        ReleasePart(release.what, of, Ledger().after(Step(step.sampling, (release,))))
        for release, of in zip(step.releases, scores, strict=True)
    )


@dataclass(frozen=True)
class RunGame(Game):
    """A game with a run of dpbench, and the parts of the run's record."""

    ledger: Ledger
    planned: Plan
    step: PrivateStep
    usage: ResourceUsage
    run: Run


RecordedStep = tuple[Plan, PrivateStep, ResourceUsage]
"""The plan of a run, its step, whose noisy sums are recorded, and its usage."""


def run_game(
    name: str, attacks: tuple[Scores, ...], ledger: Ledger, run: Run, recorded: RecordedStep
) -> RunGame:
    """The game whose other settings are those of the run."""
    about = run.privacy.delta, run.seed, *recorded, run
    return RunGame(name, attacked(run), attacks, ledger, *about)


def recorded_step(run: Run) -> RecordedStep:
    """The step of a run on the CPU."""
    cpu = torch.device("cpu")
    usage, planned = ResourceUsage(cpu), plan(run)
    step = private_step(run, planned, cpu)
    step.recorder = Recorder()
    return planned, step, usage


def attacked(run: Run) -> str:
    """The method of a run, with its variant, and its sampler unless that is Poisson's."""
    name = with_variant(run.method.name, run.method.variant)
    return name if run.sampler == "poisson" else f"{name}, {run.sampler}"


def on_canaries(run: Run, number: int, patterns: Patterns | None = None) -> Run:
    """The run with `number` canaries as its data, and a model that is linear in its parameters.
    patterns: those of at least `number` canaries; None for a default."""
    patterns, length = patterns or _patterns(run, number), worst_case_norm(run.method.clip)
    # A method that counts predictions compares them between classes and groups.
    classes = 2 if isinstance(run.method.gradient, Lagrangian) else 1
    canaries = Canaries(
        patterns,
        number,
        length,
        groups=tuple(f"group {k}" for k in range(run.method.groups or classes)),
        copies=COPIES if run.method.users_only else 1,
        classes=classes,
    )
    users = CanaryUsers(number, copies=COPIES) if run.method.users_only else None
    return replace(run, dataset=canaries, model=CanaryModel(patterns, length), users=users)


def _patterns(run: Run, number: int) -> Patterns:
    if run.method.clip.sensitivity.per_coordinate:
        return WalshPatterns(number, 1 << (number - 1).bit_length())
    return OneHotPatterns(number)


def play_run(run: Run, quiet: bool = False) -> RunGame:
    """Train a run that `on_canaries` returned, and score each canary by all releases. The attacks
    are those of `ScoreAccumulator`."""
    dataset = run.dataset
    assert isinstance(dataset, Canaries)
    planned = plan(run)
    data = run.load(Path())
    training = start_training(run, planned, data, ResourceUsage(data.train.device))
    training.step.recorder = Recorder()
    accumulator, rate = _accumulator(dataset, planned)
    matched = MatchedFilter(getattr(planned.method.noise, "coefficients", (1.0,)))
    with Progress(planned, run.privacy.delta, quiet, 0) as progress:
        for _ in training:
            mechanism, noisy = last_release(training.step)
            gradient = training.step.released.gradient
            assert gradient is not None
            if (added := matched(noisy)) is not None:
                accumulator.add(mechanism, rate, added, gradient)
            progress.advance()
    attacks = accumulator.attacks(dataset.included(run.seed))
    return run_game("run", attacks, training.ledger, run, (planned, training.step, training.usage))


def _accumulator(dataset: Canaries, planned: Plan) -> tuple[ScoreAccumulator, float]:
    """The accumulator of scores under a run's sampling law and noise, and the sampling rate."""
    patterns, number = dataset.patterns, dataset.number
    match planned.sampler.law:
        case Allocation() as law:
            return AllocationScores(patterns, number, law), 1.0
        case Poisson(rate, cycle=cycle) if planned.method.noise.bands:
            return ScoreAccumulator(patterns, number, cycle), rate
        case Poisson(rate, cycle=cycle):
            return WholeRunScores(patterns, number, cycle), rate
        case TruncatedPoisson(rate):
            return ScoreAccumulator(patterns, number), rate
    raise AssertionError
