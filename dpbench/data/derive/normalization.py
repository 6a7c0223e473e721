"""Pixels less a mean, over a standard deviation, of each channel."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from dpbench.data.dataset import Data, Dataset
from dpbench.errors import UserError
from dpbench.validate import is_number, positive, quoted


@dataclass(frozen=True)
class Normalization:
    """What is taken from pixels in [0, 1], and what they are then divided by: public constants.

    mean, std: one for each channel, or one for all. An example's gradient still depends on nobody
    else, so the account is the same; constants taken from private images are outside of it.
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not isinstance(values, list | tuple) or not all(map(is_number, values)):
                raise UserError(
                    f"normalization.{name} must be a list of numbers, got {quoted(values)}."
                )
        for value in self.std:
            positive("each of normalization.std", value)

    def check(self, dataset: Dataset) -> None:
        """UserError for data that are no images, or have another number of channels."""
        shape = dataset.shape
        if len(shape) != 3:
            raise UserError(
                f"normalization is of images, and the inputs of {dataset.name} are {shape}; use "
                "normalization=none."
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, shape[0]):
                raise UserError(
                    f"normalization.{name} has {len(values)} numbers, and the images of "
                    f"{dataset.name} have channels: {shape[0]}."
                )

    @property
    def note(self) -> str:
        """What a reader must know of it."""
        return (
            f"Pixels are less {list(self.mean)} and over {list(self.std)}; where these are "
            "statistics of the training images, no epsilon pays for them."
        )

    def of(self, data: Data) -> Data:
        """The same data, whose batches are normalised as they are made."""
        parts = (replace(split, normalize=self) for split in (data.train, data.test))
        return Data(*parts, tested_on=data.tested_on)

    def __call__(self, images: Tensor) -> Tensor:
        """The images [B, C, H, W], normalised."""
        from torchvision.transforms.v2.functional import normalize

        return normalize(images, list(self.mean), list(self.std))
