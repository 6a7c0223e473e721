"""Local batches: the examples that each user takes a gradient of."""

import torch
from torch import Tensor

from dpbench.data.dataset import Batch
from dpbench.mechanism.streams import permutation, seeded


def local_batches(users: Batch, size: int, seed: int, step: int) -> Batch:
    """The users, each with a uniform subset of `size` of their examples, without replacement.

    A user with at most `size` examples keeps all. Draws are independent across users and steps, and
    depend only on seed, step and user: not on other users, and a resumed run repeats them.
    Whoever knows them knows more than an epsilon says (see `LocalBatch` of dp_fedsgd).
    """
    assert users.present is not None
    if users.present.shape[1] <= size:
        return users
    assert users.users is not None
    subsets = [
        _subset(row.nonzero().flatten(), user, size, seed, step)
        for row, user in zip(users.present.cpu(), users.users.tolist(), strict=True)
    ]
    return _select(users, subsets, size)


def _subset(indices: Tensor, user: int, size: int, seed: int, step: int) -> Tensor:
    """At most `size` of the indices [n], in their order."""
    if len(indices) <= size:
        return indices
    stream = seeded("local batches", seed, f"{step}/{user}", torch.device("cpu"))
    return indices[permutation(stream, len(indices))[:size].sort()[0]]


def _select(users: Batch, subsets: list[Tensor], size: int) -> Batch:
    """The users with only the examples at these indices, in rows padded to `size`."""
    columns = torch.zeros(len(subsets), size, dtype=torch.int64)
    present = torch.zeros(len(subsets), size, dtype=torch.bool)
    for row, mask, subset in zip(columns, present, subsets, strict=True):
        row[: len(subset)], mask[: len(subset)] = subset, True
    device = users.targets.device
    cells = torch.arange(len(subsets), device=device).unsqueeze(1), columns.to(device)
    inputs, targets = users.inputs[cells], users.targets[cells]
    return Batch(inputs, targets, users.groups, present.to(device), users.users)
