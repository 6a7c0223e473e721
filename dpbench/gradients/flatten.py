"""What a model is shown of a batch: the rows of every unit, and what each counts in its loss."""

from typing import NamedTuple

from torch import Tensor

from dpbench.data.dataset import Batch


class FlatBatch(NamedTuple):
    """K rows of each of B units: its views, or (of a user) its examples.

    rows: all of them [B K]. shares [B, K]: of each row in its unit's loss, a mean; 0 for rows that
    only fill up.
    """

    rows: Batch
    shares: Tensor

    @property
    def rows_per_unit(self) -> int:
        """K."""
        return self.shares.shape[1]

    def losses(self, rows: Tensor) -> Tensor:
        """The losses [B] of units, from those of rows [B K]."""
        return (rows.view_as(self.shares) * self.shares).sum(1)


def flatten(batch: Batch, views: int, like: Tensor) -> FlatBatch:
    """The rows of a batch: of users as they are, else so many views of each example.

    like: a tensor of the dtype and on the device of the losses.
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
