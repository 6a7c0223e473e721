"""Scattering features of any images: fixed wavelets, with nothing learnt from data."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.dataset import Dataset
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import UserError

ANGLES = 8
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Scattering:
    """The scattering transform of order two (Bruna and Mallat 2013), by kymatio.

    depth: the number of scales J; sides shrink by 2^J, and each channel becomes 1 + 8 J + 32 J (J -
    1) channels, 81 for J = 2 as in Oyallon and Mallat 2015. Every image is transformed by itself,
    so that a linear model of the features is private if its training is (Tramer and Boneh 2021).
    normalization: of the pixels before the transform, by public constants. It scales the features,
    and so the noise beside them if `normalization=private` measures their statistics.
    """

    depth: Annotated[int, Meta(ge=1, le=5)] = 2
    normalization: Normalization | None = None

    dtype = np.float32

    @property
    def channels(self) -> int:
        """The number of features for one channel at one position."""
        return 1 + ANGLES * self.depth + ANGLES**2 * self.depth * (self.depth - 1) // 2

    @property
    def note(self) -> str:
        return self.normalization.note if self.normalization else ""

    def shape_of(self, dataset: Dataset) -> tuple[int, ...]:
        """The shape of the features of an image; UserError for data that cannot be transformed."""
        shape, least = dataset.shape, 2**self.depth
        if len(shape) != 3 or min(shape[1:]) < least:
            raise UserError(
                f"features=scattering needs images of at least {least} x {least} pixels, and the "
                f"inputs of {dataset.name} are {shape}: use features=none."
            )
        if self.normalization:
            self.normalization.check(dataset)
        return (shape[0] * self.channels, *(side // least for side in shape[1:]))

    def check_files(self) -> None:
        """Does nothing: wavelets are computed."""

    def file_name(self, inputs: str) -> str:
        """The name of a file of features: 1.1 GB for MNIST, 3.7 GB for CIFAR-10."""
        name = f"scattering{self.depth}_{inputs}"
        if self.normalization:
            name += f"_{hashlib.sha256(repr(self.normalization).encode()).hexdigest()[:8]}"
        return name

    def extractor(self, dataset: Dataset, device: torch.device) -> Callable[[Tensor], Tensor]:
        transform = self.transform(dataset.shape[1:], device)
        return lambda images: transform(images.to(device)).cpu()

    def transform(
        self, sides: tuple[int, ...], device: torch.device = CPU
    ) -> Callable[[Tensor], Tensor]:
        """A function from images [B, C, H, W] to features [B, C * channels, H / 2^J, W / 2^J],
        both on the device."""
        # The part for 3D, which kymatio.torch imports as well, needs an older SciPy.
        name = "kymatio.scattering2d.frontend.torch_frontend"
        kymatio = library(name, "features=scattering")
        network = kymatio.ScatteringTorch2D(J=self.depth, shape=sides, L=ANGLES).to(device)
        normalize = self.normalization or (lambda images: images)
        return lambda images: network(normalize(images).contiguous()).flatten(1, 2)
