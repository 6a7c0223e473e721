"""A batch of units flattened to rows for the model, and the weight of each row in its unit."""

from typing import NamedTuple

from torch import Tensor

from dpbench.data.dataset import Batch
from dpbench.system.errors import UserError


class FlatBatch(NamedTuple):
    """K rows for each of B units: the views of an example, or the examples of a user.

    rows: [B K, ...]. shares [B, K]: the weight of each row in its unit's mean loss; 0 for padding.
    """

    rows: Batch
    shares: Tensor

    @property
    def rows_per_unit(self) -> int:
        """K."""
        return self.shares.shape[1]

    def losses(self, rows: Tensor) -> Tensor:
        """The losses of units [B], from the losses of rows [B K]; UserError for another shape."""
        if rows.shape != (self.shares.numel(),):
            raise UserError(
                f"the loss of {self.shares.numel()} examples has shape {[*rows.shape]}: it must be "
                "one number for each, as with reduction='none'."
            )
        return (rows.view_as(self.shares) * self.shares).sum(1)


def flatten(batch: Batch, views: int, like: Tensor) -> FlatBatch:
    """Flatten a batch of users, or of examples with `views` views each.

    like: a tensor with the dtype and device of the losses.
    """
    if batch.present is not None:
        present = batch.present.to(like)
        shares = present / present.sum(1, keepdim=True).clamp(min=1)
        return FlatBatch(_flat(batch, batch.targets.flatten(0, 1), shares.shape[1]), shares)
    shares = like.new_full((len(batch), views), 1 / views)
    if views == 1:
        return FlatBatch(batch, shares)
    return FlatBatch(_flat(batch, batch.targets.repeat_interleave(views, 0), views), shares)


def _flat(batch: Batch, targets: Tensor, rows_per_unit: int) -> Batch:
    return Batch(
        batch.inputs.flatten(0, 1), targets, batch.groups.repeat_interleave(rows_per_unit, 0)
    )
