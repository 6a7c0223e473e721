"""A batch of units flattened to rows for the model, and the weight of each row in its unit."""

from dataclasses import dataclass

from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.system.errors import UserError


@dataclass(frozen=True)
class FlatBatch:
    """K rows for each of B units: the views of an example, or the examples of a user.

    rows: [B K, ...]. like: a tensor with the dtype and device of the losses. weights [B, K]: that
    of each row in its unit's mean loss, 0 for padding; None for units of one row each.
    """

    rows: Batch
    like: Tensor
    weights: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """B and K."""
        if self.weights is None:
            return len(self.rows), 1
        units, rows_per_unit = self.weights.shape
        return units, rows_per_unit

    @property
    def shares(self) -> Tensor:
        """The weights [B, K], of ones for units of one row each."""
        return self.like.new_ones(self.shape) if self.weights is None else self.weights

    def losses(self, rows: Tensor) -> Tensor:
        """The losses of units [B], from the losses of rows [B K]; UserError for another shape."""
        if rows.shape != (len(self.rows),):
            raise UserError(
                f"the loss of {len(self.rows)} examples has shape {[*rows.shape]}: it must be "
                "one number for each, as with reduction='none'."
            )
        if self.weights is None:
            return rows
        return (rows.view(self.shape) * self.weights).sum(1)

    def total(self, rows: Tensor) -> Tensor:
        """The sum of the losses of all units, from the losses of rows [B K]."""
        return rows.sum() if self.weights is None else rows @ self.weights.flatten()


def flatten(batch: Batch, views: int, like: Tensor) -> FlatBatch:
    """Flatten a batch of users, or of examples with `views` views each."""
    if batch.present is not None:
        present = batch.present.to(like)
        shares = present / present.sum(1, keepdim=True).clamp(min=1)
        targets = batch.targets.flatten(0, 1)
    elif views == 1:
        return FlatBatch(batch, like)
    else:
        shares = like.new_full((len(batch), views), 1 / views)
        targets = batch.targets.repeat_interleave(views, 0)
    groups = batch.groups.repeat_interleave(shares.shape[1], 0)
    return FlatBatch(Batch(batch.inputs.flatten(0, 1), targets, groups), like, shares)
