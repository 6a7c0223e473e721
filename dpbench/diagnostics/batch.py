"""What a batch says before its step: gradients plain, clipped and per group, and losses.

Nothing here moves the run: no parameter, no state of the clip, no generator, no noise. It reads
private data outside the account.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Batch
from dpbench.step import PrivateStep


class GroupMeans(NamedTuple):
    """Of the examples of each group in a batch; index k: group."""

    loss_sums: Tensor  # [K]
    counts: Tensor  # [K] int64
    gradient_norms: Tensor  # [K], of the mean gradient; NaN for a group that is absent


class ClippedBatch(NamedTuple):
    """Mean gradients of a batch, both divided by its real size; zero for an empty batch."""

    plain: Tensor  # g [D]
    clipped: Tensor  # c [D], before noise
    clipped_fraction: Tensor  # scalar: of the examples, how many have a factor below 1; or NaN


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model in test mode, and torch's own generators put back afterwards."""
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model.eval()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training


def group_means(step: PrivateStep, batch: Batch, groups: list[int]) -> GroupMeans:
    """Losses and gradient norms of some groups, by their numbers [K], at the present parameters."""
    losses, sums, counts = [], [], []
    for part in batch.split(step.physical_batch_size):
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


def clipped_batch(step: PrivateStep, batch: Batch) -> ClippedBatch:
    """The batch gradient of plain SGD, and the one that the step's clip makes of the method's.

    The clip is the step's present one. One that asks counts of the batch before it clips (DPSGD-F)
    stays at the bounds it released last, or at its base bound before the first step: asking here
    would be a private query. A gradient that is not finite counts as zero, as it does in the step.
    """
    clip, plain, clipped, shortened = step.clip, [], [], []
    for part in batch.split(step.physical_batch_size):
        own = step.engine(part)
        plain.append(own.weighted_sum(own.norms.isfinite().to(own.norms)))
        seen = step.method.gradient(step.engine, part, clip)
        factors = clip.factors(seen.norms, part.groups)
        factors = torch.where(seen.norms.isfinite(), factors, 0)
        clipped.append(clip.reduce(seen, factors))
        shortened.append((factors < 1).sum())
    size = max(len(batch), 1)
    return ClippedBatch(
        torch.stack(plain).sum(0) / size,
        clip.finish(torch.stack(clipped).sum(0)) / size,
        torch.stack(shortened).sum() / len(batch),
    )
