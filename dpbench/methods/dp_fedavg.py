"""Federated averaging: each user trains locally and sends a clipped update."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.clipping import Clip, make_clip
from dpbench.clipping.choice import Bounds
from dpbench.data.dataset import Batch
from dpbench.gradients import Engine, Parameters, PerExampleShift
from dpbench.gradients.engine import Stacked, empty
from dpbench.gradients.vmap import Vmap
from dpbench.mechanism.method import Method, ReleasedState
from dpbench.methods.dp_fedsgd import federated_method
from dpbench.validate import integer, positive

MOST_LOCAL_EPOCHS = 100_000


def dp_fedavg(
    bound: Bounds,
    local_epochs: int,
    local_batch_size: int | None,
    local_lr: float,
    cap: float | None,
    clip: str = "abadi",
    style: str = "flat",
    variant: str = "corrected",
) -> Method:
    """Each user's update after so many epochs of SGD (McMahan et al. 2018; Bu et al. 2023,
    Algorithm 4).

    The optimiser gets minus the mean update: SGD with lr 1 is federated averaging.
    local_batch_size: None for all of a user's examples. bound is that of the update; cap, clip,
    style and variant as for `dp_fedsgd`.
    """
    integer("method.local_epochs", local_epochs, most=MOST_LOCAL_EPOCHS)
    if local_batch_size is not None:
        integer("method.local_batch_size", local_batch_size)
    positive("method.local_lr", local_lr)
    seam = Trained(local_epochs, local_batch_size, local_lr)
    return federated_method("dp_fedavg", seam, cap, make_clip(clip, style, bound), variant)


@dataclass(frozen=True)
class Trained:
    """Minus the updates of users who train locally, on consecutive batches of their examples.

    After every batch the clip draws the update back, as Algorithm 4 has it; after the last one the
    private step does. Losses are those that each example had in the first epoch. The gradients are
    materialised, whichever the engine.
    """

    epochs: int
    batch_size: int | None
    lr: float

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Stacked:
        parameters = engine.parameters
        if not len(batch):
            return empty(parameters)
        own = Vmap(engine.model, engine.loss, parameters, engine.views)
        own.options = engine.options
        theta, users = parameters.theta.detach(), batch.as_users()
        updates, losses = theta.new_zeros(len(users), len(theta)), theta.new_zeros(len(users))
        everyone = torch.ones_like(losses)
        for epoch in range(self.epochs):
            for part in _parts(users, self.batch_size):
                # Users without examples left keep their update, whoever else is in the batch.
                trains = part.sizes.unsqueeze(1) > 0
                start = torch.where(trains, _clipped(updates, clip, users, parameters), updates)
                gradients = own(
                    part, PerExampleShift(Stacked(losses, start, parameters.layers), everyone)
                )
                updates = torch.where(trains, start - self.lr * gradients.stack(), start)
                if epoch == 0:
                    losses = losses + gradients.losses * (part.sizes / users.sizes)
        return Stacked(losses, -updates, parameters.layers)


def _parts(users: Batch, size: int | None) -> Iterator[Batch]:
    """The users with their first `size` examples, then with the next ones."""
    assert users.present is not None
    rows = users.present.shape[1]
    for start in range(0, rows, size or rows):
        at = slice(start, start + (size or rows))
        yield Batch(users.inputs[:, at], users.targets[:, at], users.groups, users.present[:, at])


def _clipped(updates: Tensor, clip: Clip, users: Batch, parameters: Parameters) -> Tensor:
    """The updates [B, D] as the clip leaves them."""
    seen = Stacked(updates[:, 0], updates, parameters.layers)
    factors = clip.factors(clip.lengths(seen), users.groups)
    if factors.dim() == 1:
        return updates * factors.unsqueeze(1)
    pairs = zip(parameters.layers, factors.split(1, 1), strict=True)
    return torch.cat([updates[:, layer.at] * column for layer, column in pairs], 1)
