"""One private step: gradient, clip, sum, noise, update. Every method of the suite takes it.

per-example gradients --gradient--> clip --> sum --> noise --> update --> parameters
        [B, D]                  norms -> factors   total + noise   sign, optimiser
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from dpbench.clipping import Clip, CountQuery, restore_state, state_of
from dpbench.data.dataset import Batch
from dpbench.errors import UserError
from dpbench.gradients import Engine, Gradients
from dpbench.mechanism.method import Method, ReleasedState
from dpbench.mechanism.noise import Gaussian
from dpbench.mechanism.schedules import UNCHANGED, Schedules
from dpbench.mechanism.streams import Stream
from dpbench.memory import halving, largest, ran_out

Added = TypeVar("Added")  # what physical batches can be added up as


class StepReport(NamedTuple):
    """Per-example results of a step: kept on the device, neither released nor fed back."""

    losses: Tensor  # [B]
    finite: Tensor  # [B] bool: of the gradients; one that is not counts as zero in the sum


@dataclass
class PhysicalBatchSum:
    """The sums over one or several physical batches of a step."""

    total: Tensor  # [D], or more rows (see `Clip.finish`)
    counts: Tensor  # [Q]
    report: StepReport

    def __add__(self, other: "PhysicalBatchSum") -> "PhysicalBatchSum":
        reports = zip(self.report, other.report, strict=True)
        report = StepReport(*(torch.cat(pair) for pair in reports))
        return PhysicalBatchSum(self.total + other.total, self.counts + other.counts, report)


def finite_factors(clip: Clip, norms: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Factors [B] or [B, L], 0 for gradients that are not finite, and bool [B]: which ones are."""
    finite = norms < math.inf
    if norms.dim() == 2:
        finite = finite.all(1)
    factors = clip.factors(norms, groups)
    out = ~finite if factors.dim() == 1 else ~finite.unsqueeze(1)
    return factors.masked_fill(out, 0), finite


@dataclass
class PrivateStep:
    """One step of a method on one logical batch, in physical batches that bound memory.

    The update divides by the public expected batch size, whatever the batch's real one
    (`divide_by="actual"` exists for variants that rerun a paper, and voids their guarantee).
    noise and counts are the streams of the gradient's noise and of the side queries'.
    adapts: whether the physical batches get smaller where memory runs out, or the step fails.
    """

    engine: Engine
    method: Method
    optimizer: torch.optim.Optimizer  # of the engine's theta
    noise_multiplier: float
    expected_batch_size: float
    physical_batch_size: int | None
    noise: Stream
    counts: Stream
    adapts: bool = False
    steps: int = 1  # planned, which only schedules ask for
    schedule: Schedules = UNCHANGED
    seed: int = 0  # for what a method draws itself

    def __post_init__(self) -> None:
        self.method.check_size(len(self.engine.parameters))
        self.clip = self.method.clip
        self.released = ReleasedState(0, self.steps, None, self.seed)
        self._initial = (
            [group["lr"] for group in self.optimizer.param_groups],
            self.noise_multiplier,
        )
        self._apply_schedule()

    @property
    def clip(self) -> Clip:
        """The clip of the next step, with its bounds scaled by the schedule."""
        by = self.schedule.bound_at(self.released.progress)
        return self._clip if by == 1 else self._clip.scaled(by)

    @clip.setter
    def clip(self, clip: Clip) -> None:
        self._clip = clip

    def _apply_schedule(self) -> None:
        """Sets learning rates and noise multiplier for the next step."""
        if self.schedule == UNCHANGED:
            return
        progress, (rates, multiplier) = self.released.progress, self._initial
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * self.schedule.lr_at(progress)
        self.noise_multiplier = multiplier * self.schedule.noise_at(progress)

    def __call__(self, batch: Batch) -> StepReport:
        gradients = self._gradients(batch)
        divisor = self._divisor(len(batch))
        query = self.clip.query
        if query and query.before:
            asked = self.sum_over_physical_batches(
                batch, lambda part: self._counts(gradients(part), part)
            )
            self._answer(query, asked, divisor)

        whole = self.sum_over_physical_batches(
            batch, lambda part: self._part(gradients(part), part)
        )

        # In the parameters' precision, so that every engine's sum meets the same noise.
        theta = self.engine.parameters.theta
        total = self.clip.finish(whole.total).to(theta)
        noisy = self._noised(total)
        if query and not query.before:
            self._answer(query, whole.counts, divisor)
        theta.grad = self.method.update(noisy.div_(divisor), theta.detach())
        gradient = theta.grad.clone()  # some optimisers overwrite their input
        self.optimizer.step()
        self.released = ReleasedState(self.released.steps_done + 1, self.steps, gradient, self.seed)
        self._apply_schedule()
        return whole.report

    def _noised(self, total: Tensor) -> Tensor:
        widths = self.clip.widths(self.engine.parameters.layers, total)
        arguments = self.clip.sensitivity, self.noise_multiplier, self.noise
        if widths is None:
            return self.method.noise.add(total, *arguments)
        return self.method.noise.add(total / widths, *arguments).mul_(widths)

    def sum_over_physical_batches(self, batch: Batch, work: Callable[[Batch], Added]) -> Added:
        """The sum of `work` over physical batches, restarted with smaller ones if memory runs out.

        `work` must have no side effects. Raises UserError where memory runs out and
        the step does not adapt, or one example is too many.
        """
        most, size = len(batch), self.physical_batch_size

        def each(size: int) -> Added:
            return reduce(operator.add, map(work, batch.split(size)))

        start = most if size is None else min(size, most)
        if self.adapts:
            results, fitted = halving(each, start)
            if fitted < start:
                self.physical_batch_size = fitted
            return results
        try:
            return each(start)
        except Exception as error:
            if not ran_out(error):
                raise
            raise UserError(self._too_large(start)) from error

    def _too_large(self, size: int) -> str:
        if self.method.whole_batches:
            return (
                f"memory runs out with {size} examples, and {self.method.name} needs each batch in "
                "one piece; choose a smaller batch_size or a device with more memory."
            )
        return f"memory runs out with {size} examples at once; choose physical_batch_size=auto."

    def adapt(self, probe: Batch) -> None:
        """Adapt from now on, starting from the largest physical batches that fit in memory.

        They are found by trying, on copies of made-up examples. Nothing of the run moves. Raises
        UserError where memory cannot be measured, or one example does not fit.
        """
        self.adapts = True
        # Larger batches than that are drawn once in a thousand million times.
        most = math.ceil(self.expected_batch_size + 6 * math.sqrt(self.expected_batch_size))
        copies = torch.arange(most, device=probe.targets.device) % len(probe)
        batch, theta = probe.each(lambda t: t[copies]), self.engine.parameters.theta
        # A step that is not the first may do more: methods read the last one's gradient.
        released = ReleasedState(1, self.steps, torch.ones_like(theta), self.seed)

        def attempt(size: int) -> None:
            part = batch.each(lambda t: t[:size])
            self._part(self.method.gradient(self.engine, part, self.clip, released), part)

        training = self.engine.model.training
        self.engine.model.train()
        with torch.random.fork_rng([theta.device] if theta.is_cuda else []):
            self.physical_batch_size = largest(attempt, most, theta.device)
        self.engine.model.train(training)

    def state_dict(self) -> dict:
        """All state that later steps depend on, except the sampler and torch's own generators."""
        return {
            "made": self.released.steps_done,
            "gradient": self.released.gradient,
            "model": dict(self.engine.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "clip": state_of(self._clip),
            "noise": self.noise.state_dict(),
            "counts": self.counts.state_dict(),
            "physical_batch_size": self.physical_batch_size,
        }

    def load_state_dict(self, state: dict) -> None:
        theta, gradient = self.engine.parameters.theta, state["gradient"]
        self.engine.model.load_state_dict(state["model"])  # in place, and with it theta
        self.optimizer.load_state_dict(state["optimizer"])
        self._clip = restore_state(self.method.clip, state["clip"], theta.device)
        self.noise.load_state_dict(state["noise"])
        self.counts.load_state_dict(state["counts"])
        self.physical_batch_size = state["physical_batch_size"]
        last = None if gradient is None else gradient.to(theta)
        self.released = ReleasedState(state["made"], self.steps, last, self.seed)
        self._apply_schedule()

    def _gradients(self, batch: Batch) -> Callable[[Batch], Gradients]:
        """Gradients of physical batches: kept for the next pass where they are of the whole batch,
        and else computed whenever asked for."""
        kept: list[Gradients] = []

        def gradients(part: Batch) -> Gradients:
            if part is batch and kept:
                return kept[0]
            kept.clear()
            computed = self.method.gradient(self.engine, part, self.clip, self.released)
            if part is batch:
                kept.append(computed)
            return computed

        return gradients

    def _part(self, gradients: Gradients, part: Batch) -> PhysicalBatchSum:
        """Pure: changes neither the clip nor a generator of the step."""
        clip = self.clip
        norms = clip.lengths(gradients)
        factors, finite = finite_factors(clip, norms, part.groups)
        total, counts = clip.reduce(gradients, factors), clip.counts(norms, part.groups)
        return PhysicalBatchSum(total, counts, StepReport(gradients.losses, finite))

    def _counts(self, gradients: Gradients, part: Batch) -> Tensor:
        return self.clip.counts(self.clip.lengths(gradients), part.groups)

    def _answer(self, query: CountQuery, counts: Tensor, divisor: float) -> None:
        """Releases the clip's counts with noise, and updates the clip by the noisy counts."""
        multiplier = query.multiplier(self.noise_multiplier)
        noisy = Gaussian().add(counts.double(), 1.0, multiplier, self.counts)
        # The unscaled clip, as the schedule's factor must not accumulate in the bound.
        self._clip = self._clip.updated(noisy.to(self.engine.parameters.theta), divisor)

    def _divisor(self, batch_size: int) -> float:
        return max(batch_size, 1) if self.method.divide_by == "actual" else self.expected_batch_size
