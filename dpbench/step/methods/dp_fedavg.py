"""Federated averaging: each user trains locally and sends a clipped update."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.step.clipping import Bounds, Clip, ClipName, make_clip
from dpbench.step.gradients import Engine, MaterialisedGradients, Parameters, PerExampleShift
from dpbench.step.gradients.engine import empty
from dpbench.step.gradients.vmap import Vmap
from dpbench.step.mechanism import Gradient, Method, ReleasedState, checked
from dpbench.step.methods.dp_fedsgd import federated_method
from dpbench.system.validate import Count, Positive

LocalEpochs = Annotated[int, Meta(ge=1, le=100_000)]


@checked
def dp_fedavg(
    bound: Bounds,
    local_epochs: LocalEpochs,
    local_batch_size: Count | None,
    local_lr: Positive,
    cap: Positive | None,
    clip: ClipName = "abadi",
    style: str = "flat",
    variant: str = "corrected",
) -> Method:
    """Each user's update after `local_epochs` of SGD (McMahan et al. 2018; Bu et al. 2023,
    Algorithm 4).

    The optimiser gets the negative mean update: SGD with lr 1 is federated averaging.
    local_batch_size: None for all of a user's examples. bound is that of the update; cap, clip,
    style and variant as for `dp_fedsgd`.
    """
    gradient = LocalTraining(local_epochs, local_batch_size, local_lr)
    return federated_method("dp_fedavg", gradient, cap, make_clip(clip, style, bound), variant)


@dataclass(frozen=True)
class LocalTraining(Gradient):
    """The negative updates of users who train locally, on consecutive batches of their examples.

    The update is clipped before every batch, as in Algorithm 4, and after the last one by the
    private step. Losses are those of the first epoch. Gradients are materialised with any engine.
    """

    epochs: int
    batch_size: int | None
    lr: float

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> MaterialisedGradients:
        parameters = engine.parameters
        if not len(batch):
            return empty(parameters)
        vmap = Vmap(engine.model, engine.loss, parameters, engine.views)
        vmap.options = engine.options
        theta, users = parameters.theta.detach(), batch.as_users()
        updates, losses = theta.new_zeros(len(users), len(theta)), theta.new_zeros(len(users))
        ones = torch.ones_like(losses)
        for epoch in range(self.epochs):
            for part in _parts(users, self.batch_size):
                # Users without remaining examples keep their update.
                active = part.sizes.unsqueeze(1) > 0
                start = torch.where(
                    active, _clip_updates(updates, clip, users, parameters), updates
                )
                gradients = vmap(
                    part,
                    PerExampleShift(MaterialisedGradients(losses, start, parameters.layers), ones),
                )
                updates = torch.where(active, start - self.lr * gradients.stack(), start)
                if epoch == 0:
                    losses = losses + gradients.losses * (part.sizes / users.sizes)
        return MaterialisedGradients(losses, -updates, parameters.layers)


def _parts(users: Batch, size: int | None) -> Iterator[Batch]:
    """The users with their first `size` examples, then with the next ones."""
    assert users.present is not None
    rows = users.present.shape[1]
    for start in range(0, rows, size or rows):
        at = slice(start, start + (size or rows))
        yield Batch(users.inputs[:, at], users.targets[:, at], users.groups, users.present[:, at])


def _clip_updates(updates: Tensor, clip: Clip, users: Batch, parameters: Parameters) -> Tensor:
    """The clipped updates [B, D]."""
    stacked = MaterialisedGradients(updates[:, 0], updates, parameters.layers)
    factors = clip.factors(clip.norms(stacked), users.groups)
    if factors.dim() == 1:
        return updates * factors.unsqueeze(1)
    pairs = zip(parameters.layers, factors.split(1, 1), strict=True)
    return torch.cat([updates[:, layer.at] * column for layer, column in pairs], 1)
