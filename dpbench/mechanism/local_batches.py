"""Local batches: the examples that each user takes a gradient of."""

import torch
from torch import Tensor

from dpbench.data.dataset import Batch
from dpbench.mechanism.streams import permutation, seeded


def local_batches(users: Batch, size: int, seed: int, step: int) -> Batch:
    """The users, each with a uniform subset of `size` of their examples, without replacement.

    A user who has no more keeps all. Draws of different users and steps are independent, and each
    follows from seed, step and user alone: nobody's depends on who else is there, and a run that is
    taken up draws the same again. Everybody may know them (see `LocalBatch` of dp_fedsgd).
    """
    assert users.present is not None
    if users.present.shape[1] <= size:
        return users
    assert users.users is not None
    owned = [row.nonzero().flatten() for row in users.present.cpu()]
    numbers = users.users.tolist()
    drawn = [_drawn(*one, size, seed, step) for one in zip(owned, numbers, strict=True)]
    return _at(users, drawn, size)


def _drawn(places: Tensor, user: int, size: int, seed: int, step: int) -> Tensor:
    """At most `size` of the places [n], in their order."""
    if len(places) <= size:
        return places
    stream = seeded("local batches", seed, f"{step}/{user}", torch.device("cpu"))
    return places[permutation(stream, len(places))[:size].sort()[0]]


def _at(users: Batch, places: list[Tensor], size: int) -> Batch:
    """The users with the examples at these places alone, in rows filled up to `size`."""
    at = torch.zeros(len(places), size, dtype=torch.int64)
    present = torch.zeros(len(places), size, dtype=torch.bool)
    for row, here, chosen in zip(at, present, places, strict=True):
        row[: len(chosen)], here[: len(chosen)] = chosen, True
    device = users.targets.device
    cells = torch.arange(len(places), device=device).unsqueeze(1), at.to(device)
    inputs, targets = users.inputs[cells], users.targets[cells]
    return Batch(inputs, targets, users.groups, present.to(device), users.users)
