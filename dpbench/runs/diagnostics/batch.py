"""Gradients and losses of a batch before its step: plain, clipped and per group."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.modes import in_mode
from dpbench.step.gradients import Engine, Gradients
from dpbench.step.gradients.engine import Shift
from dpbench.step.mechanism.step import PrivateStep, finite_factors
from dpbench.system.seeds import torch_state_kept


class GroupMeans(NamedTuple):
    """Statistics of the examples of each group in a batch; index k: group."""

    loss_sums: Tensor  # [K]
    counts: Tensor  # [K] int64
    gradient_norms: Tensor  # [K], of the mean gradient; NaN for an absent group


class ClippedBatch(NamedTuple):
    """Mean gradients of a batch, both divided by its real size; zero for an empty batch."""

    plain: Tensor  # g [D]
    clipped: Tensor  # c [D], before noise
    clipped_fraction: Tensor  # scalar: the fraction of examples with a factor below 1; or NaN


@contextmanager
def isolated_evaluation(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; modes and torch's generators are restored afterwards."""
    with torch_state_kept(next(model.parameters()).device), in_mode(model, training=False):
        yield


def group_means(step: PrivateStep, batch: Batch, groups: list[int]) -> GroupMeans:
    """Losses and gradient norms of the groups with numbers [K], at the current parameters. Only
    examples of these groups pass through the model."""
    losses, sums, counts = [], [], []
    chosen = torch.isin(batch.groups, torch.tensor(groups, device=batch.groups.device))
    for part in step.physical.split(batch.each(lambda tensor: tensor[chosen])):
        gradients = step.engine(part)
        finite = gradients.norms.isfinite()
        members = [part.groups == k for k in groups]
        losses.append(torch.stack([gradients.losses[m].sum() for m in members]))
        counts.append(torch.stack([m.sum() for m in members]))
        rows = [gradients.weighted_sum((m & finite).to(gradients.norms)) for m in members]
        sums.append(torch.stack(rows))
    count = torch.stack(counts).sum(0)
    mean = torch.stack(sums).sum(0) / count.unsqueeze(1)
    return GroupMeans(torch.stack(losses).sum(0), count, torch.linalg.vector_norm(mean, dim=1))


def unaugmented(engine: Engine, batch: Batch) -> Batch:
    """The batch without augmentation: equal views, as many as the engine expects [B, K, ...]."""
    if engine.views == 1:
        return batch
    views = batch.inputs.unsqueeze(1).expand(-1, engine.views, *batch.inputs.shape[1:])
    return Batch(views, batch.targets, batch.groups)


class CachedEngine:
    """An engine that returns cached gradients for one batch at theta, and delegates otherwise. It
    saves a pass for methods that start from those gradients."""

    def __init__(self, engine: Engine, batch: Batch, gradients: Gradients):
        self.name, self.model, self.loss = engine.name, engine.model, engine.loss
        self.parameters, self.views, self.options = engine.parameters, engine.views, engine.options
        self.by_row = engine.by_row
        self._engine, self._batch, self._gradients = engine, batch, gradients

    def __call__(self, batch: Batch, shift: Shift | None = None) -> Gradients:
        if batch is self._batch and shift is None:
            return self._gradients
        return self._engine(batch, shift)


class BatchGradients(NamedTuple):
    """Plain and method gradients of a physical batch of B examples, and the clip's factors.

    A clip that queries counts before clipping (DPSGD-F) stays at its last released bounds, first at
    its base bound: a query would be a private release. Non-finite gradients count as zero.
    """

    plain: Gradients  # g_i, of the losses alone
    method: Gradients  # h_i, what the method passes to its clip; the same object if plain
    plain_finite: Tensor  # [B] bool: g_i is finite
    method_finite: Tensor  # [B] bool: h_i is finite
    factors: Tensor  # [B], or [B, L] per layer, of the clip; 0 where h_i is not finite

    @property
    def clipped_mask(self) -> Tensor:
        """[B] bool: a factor is below 1."""
        return self.factors < 1 if self.factors.dim() == 1 else (self.factors < 1).any(1)

    def factors_of(self, members: Tensor) -> Tensor:
        """The factors, with 0 for examples that are not in members [B] bool."""
        others = ~members if self.factors.dim() == 1 else ~members.unsqueeze(1)
        return self.factors.masked_fill(others, 0)


def batch_gradients(step: PrivateStep, part: Batch) -> BatchGradients:
    """Gradients of a physical batch at the current parameters, in one engine pass if the method
    clips plain gradients."""
    gradients = step.engine(part)
    cached = CachedEngine(step.engine, part, gradients)
    method = step.gradient(cached, part, step.clip, step.released)
    factors, finite = finite_factors(step.clip, step.clip.norms(method), part.groups)
    return BatchGradients(gradients, method, gradients.norms.isfinite(), finite, factors)


def clipped_batch(step: PrivateStep, batch: Batch) -> ClippedBatch:
    """The batch gradient of plain SGD, and the method's batch gradient after clipping."""
    clip, unclipped, clipped, clipped_counts = step.clip, [], [], []
    for part in step.physical.split(batch):
        gradients = batch_gradients(step, part)
        unclipped.append(
            gradients.plain.weighted_sum(gradients.plain_finite.to(gradients.plain.norms))
        )
        clipped.append(clip.reduce(gradients.method, gradients.factors))
        clipped_counts.append(gradients.clipped_mask.sum())
    size = max(len(batch), 1)
    return ClippedBatch(
        torch.stack(unclipped).sum(0) / size,
        clip.finish(torch.stack(clipped).sum(0)) / size,
        torch.stack(clipped_counts).sum() / len(batch),
    )
