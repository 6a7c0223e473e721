"""One private step: gradient, clip, sum, noise, update. It is the same for every method.

per-example gradients --gradient--> clip --> sum --> noise --> update --> parameters
        [B, D]                  norms -> factors   total + noise   sign, optimiser
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.step.clipping import Clip, CountQuery
from dpbench.step.gradients import Engine, Gradients
from dpbench.step.gradients.engine import may_be_nonfinite
from dpbench.step.gradients.norms import selected
from dpbench.step.gradients.precision import in_full_precision
from dpbench.step.mechanism.eager import descends, eager_step
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.physical_batches import PhysicalBatches, Summand
from dpbench.step.mechanism.schedules import UNCHANGED, Schedules
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import number, positive


class StepReport(NamedTuple):
    """Per-example results of a step, on its device; no later step depends on them."""

    losses: Tensor  # [B]
    finite: Tensor  # [B] bool; non-finite gradients count as zero in the sum


@dataclass
class ClippedSum:
    """The sums over one or more physical batches of a step."""

    total: Tensor  # [D], or more rows (see `Clip.finish`)
    exact_counts: Tensor  # [Q]
    report: StepReport

    def __add__(self, other: "ClippedSum") -> "ClippedSum":
        reports = zip(self.report, other.report, strict=True)
        report = StepReport(*(torch.cat(pair) for pair in reports))
        return ClippedSum(self.total + other.total, self.exact_counts + other.exact_counts, report)


def finite_factors(clip: Clip, norms: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Factors [B] or [B, L], 0 for non-finite gradients, and whether each is finite [B] bool;
    UserError for a clip that gives other than one for each norm."""
    factors = clip.factors(norms, groups)
    if not isinstance(factors, Tensor) or factors.shape != norms.shape:
        given = list(factors.shape) if isinstance(factors, Tensor) else type(factors).__name__
        raise UserError(
            f"the clip {type(clip).__name__} must give a tensor with a factor for each norm, "
            f"{list(norms.shape)}, but gives {given}."
        )
    if not may_be_nonfinite(norms):
        return factors, norms.new_ones(norms.shape[:1], dtype=torch.bool)
    finite = norms < math.inf
    if norms.dim() == 1:
        return selected(factors, finite), finite
    finite = finite.all(1)
    return selected(factors, finite.unsqueeze(1)), finite


NO_COUNTS = torch.zeros(0)
"""The exact counts [0] of a clip without a query."""


def exact_counts(clip: Clip, gradients: Gradients, norms: Tensor, groups: Tensor) -> Tensor:
    """The exact answer [Q] to a clip's query on a physical batch."""
    if clip.query is None:
        return NO_COUNTS
    return clip.counts(norms, groups) if gradients.counts is None else gradients.counts


class NoisySum(NamedTuple):
    """A noisy sum [D] in units of its sensitivity, and its noise multiplier."""

    noisy: Tensor
    multiplier: float


@dataclass
class Recorder:
    """What steps have released, in order: noisy sums, and noisy counts [Q] of an adaptive clip."""

    sums: list[NoisySum] = field(default_factory=list)
    noisy_counts: list[Tensor] = field(default_factory=list)


@dataclass
class PrivateStep:
    """One step of a method on one logical batch.

    The update divides by the public expected batch size instead of the real one (`by_real_size`
    exists for variants as published, and voids their guarantee). noise_stream, count_stream: the
    random streams of the gradient noise and of the noise of the clip's counts.
    """

    engine: Engine
    method: Method
    optimizer: torch.optim.Optimizer  # of the engine's theta
    noise_multiplier: float
    expected_batch_size: float
    physical: PhysicalBatches
    noise_stream: Stream
    count_stream: Stream
    steps: int = 1  # planned; only schedules depend on it
    schedule: Schedules = UNCHANGED
    seed: int = 0  # for random draws inside a step
    recorder: Recorder | None = None  # for audits

    def __post_init__(self) -> None:
        self._check_size()
        number("noise_multiplier", self.noise_multiplier, 0.0)  # of 0 no ledger has an epsilon
        positive("expected_batch_size", self.expected_batch_size)
        trained = [part for group in self.optimizer.param_groups for part in group["params"]]
        if len(trained) != 1 or trained[0] is not self.engine.parameters.theta:
            raise UserError(
                "the optimizer of a private step must be made for [engine.parameters.theta], all "
                "parameters of the model in one vector: others get no gradient."
            )
        self.clip = self.method.clip
        self.gradient = self.method.gradient
        self._noise, self.update = self.method.noise, self.method.update
        self.released = self._state_after(0, None)
        self._initial = (
            [group["lr"] for group in self.optimizer.param_groups],
            self.noise_multiplier,
        )
        self._apply_schedule()

    def _check_size(self) -> None:
        """UserError if the sensitivity was derived for a model of another size."""
        size, sensitivity = len(self.engine.parameters), self.method.clip.sensitivity
        if sensitivity.per_coordinate and sensitivity.coordinates != size:
            raise UserError(
                f"{self.method.name} was made for {sensitivity.coordinates or 'no'} parameters and "
                f"the model trains {size}: call bind."
            )

    @property
    def clip(self) -> Clip:
        """The clip of the next step, or of the last, with its bounds scaled by the schedule."""
        if self.schedule is UNCHANGED:  # in every step several times
            return self._clip
        factor = self.schedule.bound_at(self._progress)
        return self._clip if factor == 1 else self._clip.scaled(factor)

    @clip.setter
    def clip(self, clip: Clip) -> None:
        self._clip = clip

    @property
    def _progress(self) -> float:
        """That of the next step, or of the last one after it: no schedule is checked beyond."""
        return min(self.released.steps_done, self.steps - 1) / self.steps

    def _apply_schedule(self) -> None:
        if self.schedule == UNCHANGED:
            return
        progress, (rates, multiplier) = self._progress, self._initial
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * self.schedule.lr_at(progress)
        self.noise_multiplier = multiplier * self.schedule.noise_at(progress)

    @in_full_precision
    def __call__(self, batch: Batch) -> StepReport:
        gradients = self._gradients(batch)
        divisor = self._divisor(len(batch))
        query, counts = self.clip.query, None
        if query and query.before:
            exact = self._sum(batch, lambda part: self._exact_counts(gradients(part), part))
            counts = self._release_counts(query, exact, divisor)

        result = self._sum(batch, partial(self._part_sum, gradients))

        # In the parameters' precision, so that every engine's sum gets the same noise.
        theta = self.engine.parameters.theta
        noisy, scale = self._with_noise(self.clip.finish(result.total).to(theta))
        if self.clip.memory:
            self._clip = self._clip.carried(result.total)
        if query and not query.before:
            counts = self._release_counts(query, result.exact_counts, divisor)
        mean, start = noisy.div_(divisor), theta.detach()
        self.update = self.update.advance(mean, scale / divisor, start, self.released)
        self.gradient = self.gradient.advance(start, counts)
        theta.grad = self.update(mean, start)
        # Other steps than an addition may overwrite their input.
        gradient = theta.grad if descends(self.optimizer) else theta.grad.clone()
        eager_step(self.optimizer)
        self.released = self._state_after(self.released.steps_done + 1, gradient)
        self._apply_schedule()
        return result.report

    def _sum(self, batch: Batch, work: Callable[[Batch], Summand]) -> Summand:
        return self.physical.sum(
            batch, work, self.method.name if self.method.whole_batches else None
        )

    def _with_noise(self, total: Tensor) -> tuple[Tensor, float | Tensor]:
        """The noisy sum [D], and the scale of its noise: a scalar or [D]."""
        widths = self.clip.widths(self.engine.parameters.layers, total)
        sensitivity, multiplier = self.clip.sensitivity.bound, self.noise_multiplier
        self._noise = self._noise.advance(total, self.noise_stream)
        scaled = total if widths is None else total / widths
        noisy = self._noise.add(scaled, sensitivity, multiplier, self.noise_stream)
        if self.recorder:
            in_units = noisy.detach().double() / sensitivity
            self.recorder.sums.append(NoisySum(in_units, multiplier))
        scale = sensitivity * multiplier
        return (noisy, scale) if widths is None else (noisy.mul_(widths), scale * widths)

    def _state_after(self, steps: int, gradient: Tensor | None) -> ReleasedState:
        about = self.seed, self.expected_batch_size, self.update
        return ReleasedState(steps, self.steps, gradient, *about)

    def state_dict(self) -> dict:
        """All state that later steps depend on, except the sampler and torch's own generators."""
        return {
            "steps_done": self.released.steps_done,
            "seed": self.seed,
            "gradient": self.released.gradient,
            "model": dict(self.engine.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "seam": state_of(self.gradient),
            "clip": state_of(self._clip),
            "update": state_of(self.update),
            "correlated_noise": state_of(self._noise),
            "noise": self.noise_stream.state_dict(),
            "counts": self.count_stream.state_dict(),
            "physical_batch_size": self.physical.size,
        }

    def load_state_dict(self, state: dict) -> None:
        theta, gradient = self.engine.parameters.theta, state["gradient"]
        self.engine.model.load_state_dict(state["model"])  # in place, so theta changes too
        self.optimizer.load_state_dict(state["optimizer"])
        self.seed = state["seed"]
        self.gradient = restore_state(self.method.gradient, state["seam"], theta.device)
        self._clip = restore_state(self.method.clip, state["clip"], theta.device)
        self.update = restore_state(self.method.update, state["update"], theta.device)
        past = state["correlated_noise"]
        self._noise = restore_state(self.method.noise, past, self.noise_stream.device)
        self.noise_stream.load_state_dict(state["noise"])
        self.count_stream.load_state_dict(state["counts"])
        self.physical.size = state["physical_batch_size"]
        last = None if gradient is None else gradient.to(theta)
        self.released = self._state_after(state["steps_done"], last)
        self._apply_schedule()

    def _gradients(self, batch: Batch) -> Callable[[Batch], Gradients]:
        """Computes the gradients of a physical batch; cached between passes if it is the whole
        logical batch."""
        cache: list[Gradients] = []

        def gradients(part: Batch) -> Gradients:
            if part is batch and cache:
                return cache[0]
            cache.clear()
            computed = self.gradient(self.engine, part, self.clip, self.released)
            if part is batch:
                cache.append(computed)
            return computed

        return gradients

    def _part_sum(self, gradients: Callable[[Batch], Gradients], part: Batch) -> ClippedSum:
        return self.clipped_sum(gradients(part), part)

    def clipped_sum(self, gradients: Gradients, part: Batch) -> ClippedSum:
        """The sums over one physical batch; changes neither the clip nor a stream of the step."""
        clip = self.clip
        norms = clip.norms(gradients)
        factors, finite = finite_factors(clip, norms, part.groups)
        total = clip.reduce(gradients, factors)
        counts = exact_counts(clip, gradients, norms, part.groups)
        return ClippedSum(total, counts, StepReport(gradients.losses, finite))

    def _exact_counts(self, gradients: Gradients, part: Batch) -> Tensor:
        return exact_counts(self.clip, gradients, self.clip.norms(gradients), part.groups)

    def _release_counts(self, query: CountQuery, counts: Tensor, divisor: float) -> Tensor:
        """Adds noise to the counts, and updates the clip by them; returns them over the divisor."""
        multiplier = query.multiplier(self.noise_multiplier)
        noisy = Gaussian().add(counts.double(), 1.0, multiplier, self.count_stream)
        released = noisy.to(self.engine.parameters.theta)
        if self.recorder:
            self.recorder.noisy_counts.append(released.double())
        # The unscaled clip, so that the schedule's factor does not accumulate in the bound.
        self._clip = self._clip.at_noise(self.noise_multiplier).updated(released, divisor)
        return released / divisor

    def _divisor(self, batch_size: int) -> float:
        return max(batch_size, 1) if self.method.by_real_size else self.expected_batch_size
