"""One private step: gradient, clip, sum, noise, update. Every method of the suite takes it.

per-example gradients --gradient--> clip --> sum --> noise --> update --> parameters
        [B, D]                  norms -> factors   total + noise      optimiser
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.clipping import Clip, CountQuery
from dpbench.data.dataset import Batch
from dpbench.gradients import Engine, Gradients
from dpbench.methods.method import Method


class StepReport(NamedTuple):
    """What a step looked like: scalars on the device, neither released nor ever fed back."""

    loss: Tensor  # sum over the examples whose loss is finite
    examples: Tensor  # how many those are
    not_finite: Tensor  # examples whose gradient is not finite, counted as zero in the sum


@dataclass
class PrivateStep:
    """One step of a method on one logical batch, in physical batches that bound memory.

    The update divides by the public expected batch size, whatever the batch's real one
    (`divide_by="actual"` exists for variants that rerun a paper, and voids their guarantee).
    noise and counts are the generators of the gradient's noise and of the side queries'.
    """

    engine: Engine
    method: Method
    optimizer: torch.optim.Optimizer  # of the engine's theta
    noise_multiplier: float
    expected_batch_size: float
    physical_batch_size: int | None
    noise: torch.Generator
    counts: torch.Generator

    def __post_init__(self) -> None:
        self.clip: Clip = self.method.clip

    def __call__(self, batch: Batch) -> StepReport:
        gradients = self._gradients(batch.split(self.physical_batch_size))
        divisor = self._divisor(len(batch))
        query = self.clip.query
        if query and query.before:
            counts = [self.clip.counts(g.norms, part.groups) for g, part in gradients()]
            self._answer(query, counts, divisor)

        clip, sums, counts, reports = self.clip, [], [], []
        for g, part in gradients():
            norms = g.norms
            finite = norms.isfinite()
            factors = torch.where(finite, clip.factors(norms, part.groups), 0)
            sums.append(clip.reduce(g, factors))
            counts.append(clip.counts(norms, part.groups))
            reports.append(_report(g.losses, finite))

        # In the parameters' precision, so that every engine's sum meets the same noise.
        total = clip.finish(_add(sums)).to(self.engine.parameters.theta)
        noisy = self.method.noise.add(total, clip.sensitivity, self.noise_multiplier, self.noise)
        if query and not query.before:
            self._answer(query, counts, divisor)
        theta = self.engine.parameters.theta
        theta.grad = (noisy / divisor).to(theta)
        self.optimizer.step()
        return StepReport(*map(_add, zip(*reports, strict=True)))

    def _gradients(self, parts: list[Batch]) -> Callable[[], Iterable[tuple[Gradients, Batch]]]:
        """The parts with their gradients, as often as called: one is kept, several recomputed."""

        def compute() -> Iterable[tuple[Gradients, Batch]]:
            return ((self.method.gradient(self.engine, part, self.clip), part) for part in parts)

        if len(parts) > 1:
            return compute
        kept = list(compute())
        return lambda: kept

    def _answer(self, query: CountQuery, counts: list[Tensor], divisor: float) -> None:
        """Release the clip's counts with noise, and let the clip move by what was released."""
        exact = _add(counts).double()
        draw = torch.randn(
            exact.shape, dtype=exact.dtype, device=exact.device, generator=self.counts
        )
        noisy = exact + query.multiplier(self.noise_multiplier) * draw
        self.clip = self.clip.updated(noisy.to(self.engine.parameters.theta), divisor)

    def _divisor(self, batch_size: int) -> float:
        return max(batch_size, 1) if self.method.divide_by == "actual" else self.expected_batch_size


def _report(losses: Tensor, finite_gradient: Tensor) -> StepReport:
    finite = losses.isfinite()
    return StepReport(losses.nan_to_num(0, 0, 0).sum(), finite.sum(), (~finite_gradient).sum())


def _add(tensors: Iterable[Tensor]) -> Tensor:
    first, *rest = tensors
    return sum(rest, first)
