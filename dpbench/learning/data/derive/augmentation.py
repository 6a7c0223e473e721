"""Augmentation multiplicity: the gradients of several views of an example are averaged and clipped.

Fort et al. 2021; De et al. 2022, "Unlocking high-accuracy differentially private image
classification through scale". Each example still has one clipped gradient, so the accounting is
unchanged.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.dataset import Dataset, check_images
from dpbench.learning.data.examples import Batch
from dpbench.system.errors import UserError
from dpbench.system.validate import Share, Whole, one_of

MAX_VIEWS = 10_000
PADDINGS = ("reflect", "zero")
FLIPS = ("horizontal", "none", "vertical")


@dataclass(frozen=True)
class ShiftsFlips:
    """Random shifts and flips, each applied with `probability`, independently in K = `views` views.

    A shift moves an image by integers that are uniform from -shift to shift on each axis, and pads
    it by `padding`: "zero" (black, or the mean for normalised images) or "reflect" (without
    repeating the edge). flip: "horizontal" (left to right), "vertical" or "none".
    """

    views: Annotated[int, Meta(ge=1, le=MAX_VIEWS)]
    shift: Whole
    padding: str
    flip: str
    probability: Share

    def __post_init__(self) -> None:
        one_of("augmentation.padding", self.padding, PADDINGS)
        one_of("augmentation.flip", self.flip, FLIPS)

    def check(self, dataset: Dataset) -> None:
        """UserError for data other than images, or images not larger than the shift."""
        check_images("augmentation", dataset)
        shape = dataset.shape
        if self.shift >= min(shape[1:]):
            raise UserError(
                f"augmentation.shift={self.shift} must be less than the side of the images of "
                f"{dataset.name}, which are {shape[1]} x {shape[2]}."
            )

    def of(self, batch: Batch, draw: torch.Generator) -> Batch:
        """The batch with inputs [B, K, C, H, W], or [B, C, H, W] if K = 1, as engines expect."""
        inputs = self.apply(batch.inputs, draw)
        return replace(batch, inputs=inputs.squeeze(1) if self.views == 1 else inputs)

    def apply(self, images: Tensor, draw: torch.Generator) -> Tensor:
        """Views [B, K, C, H, W] of images [B, C, H, W], all at once."""
        return self._moved(images, self.views, draw)

    def _moved(self, images: Tensor, views: int, draw: torch.Generator) -> Tensor:
        shape = (len(images), views)
        down, right = self._offsets(shape, draw)
        flipped = self._coin(shape, draw)
        height, width = images.shape[-2:]
        rows = _source_indices(height, down, flipped if self.flip == "vertical" else None)
        columns = _source_indices(width, right, flipped if self.flip == "horizontal" else None)
        return _gather(images, rows, columns, zero=self.padding == "zero")

    def _offsets(self, shape: tuple[int, int], draw: torch.Generator) -> Tensor:
        """The shift of each view, down and to the right [2, B, K]."""
        bounds = -self.shift, self.shift + 1
        offsets = torch.randint(*bounds, (2, *shape), generator=draw, device=draw.device)
        return offsets * self._coin(shape, draw)

    def _coin(self, shape: tuple[int, int], draw: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=draw, device=draw.device) < self.probability


def _source_indices(size: int, offset: Tensor, flipped: Tensor | None) -> Tensor:
    """The source index of each pixel along one axis [B, K, size]; outside 0 to size - 1 is padding.

    A view is shifted first, then flipped.
    """
    indices = torch.arange(size, device=offset.device).expand(*offset.shape, size)
    if flipped is not None:
        indices = torch.where(flipped.unsqueeze(-1), size - 1 - indices, indices)
    return indices - offset.unsqueeze(-1)


def _gather(images: Tensor, rows: Tensor, columns: Tensor, zero: bool) -> Tensor:
    """The pixels [B, K, C, H, W] at rows [B, K, H] and columns [B, K, W] of images [B, C, H, W]."""
    height, width = images.shape[-2:]
    inside_rows, inside_columns = _reflected(rows, height), _reflected(columns, width)
    pixels = (inside_rows.unsqueeze(-1) * width + inside_columns.unsqueeze(-2)).flatten(2)
    views, channels = rows.shape[1], images.shape[1]
    pixels = pixels.unsqueeze(2).expand(-1, -1, channels, -1)
    flat = images.flatten(2).unsqueeze(1).expand(-1, views, -1, -1)
    result = flat.gather(-1, pixels).unflatten(-1, (height, width))
    if zero:
        outside = (rows != inside_rows).unsqueeze(-1) | (columns != inside_columns).unsqueeze(-2)
        result = result.masked_fill(outside.unsqueeze(2), 0)
    return result


def _reflected(indices: Tensor, size: int) -> Tensor:
    """Indices reflected at the first and last pixel; once, as shifts are smaller than images."""
    last = size - 1
    return last - (last - indices.abs()).abs()
