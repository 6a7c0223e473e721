"""Normalisation of images: subtracts a mean and divides by a standard deviation per channel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from dpbench.learning.data.dataset import Dataset, check_images
from dpbench.learning.data.examples import Data
from dpbench.system.errors import UserError
from dpbench.system.validate import Positive


@dataclass(frozen=True)
class Normalization:
    """Normalisation of pixels in [0, 1] by public constants.

    mean, std: one number per channel, or one for all. An example's gradient still depends on that
    example alone, so the accounting is unchanged; constants estimated from private images are not
    accounted for.
    """

    mean: Sequence[float]
    std: Sequence[Positive]

    def check(self, dataset: Dataset) -> None:
        """UserError for data other than images, or another number of channels."""
        check_images("normalization", dataset)
        channels = dataset.shape[0]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise UserError(
                    f"normalization.{name} has {len(values)} numbers, and the images of "
                    f"{dataset.name} have this many channels: {channels}."
                )

    @property
    def note(self) -> str:
        """The note on privacy for records and tables."""
        return (
            f"Pixels are less {list(self.mean)} and over {list(self.std)}; where these are "
            "statistics of the training images, no epsilon pays for them."
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise images [B, C, H, W]."""
        from torchvision.transforms.v2.functional import normalize

        return normalize(images, list(self.mean), list(self.std))


def with_transform(data: Data, normalize: Callable[[Tensor], Tensor]) -> Data:
    """The same data with a function applied to the inputs of every batch."""
    train, test = (replace(split, normalize=normalize) for split in (data.train, data.test))
    targets, calibration = data.targets, data.calibration
    if targets:
        targets = replace(targets, examples=replace(targets.examples, normalize=normalize))
    if calibration:
        calibration = replace(calibration, normalize=normalize)
    return replace(data, train=train, test=test, targets=targets, calibration=calibration)
