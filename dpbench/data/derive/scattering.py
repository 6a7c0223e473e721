"""Scattering features of any images: fixed wavelets, with nothing learnt from data."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpbench.data.caches import ensure_cached
from dpbench.data.dataset import Data, Dataset, DerivedDataset, Split
from dpbench.data.derive.normalization import Normalization
from dpbench.data.fetch.library import library
from dpbench.errors import UserError
from dpbench.validate import integer

AT_ONCE = 256
"""The number of images transformed at once."""

ANGLES = 8


@dataclass(frozen=True)
class Scattering:
    """The scattering transform of order two (Bruna and Mallat 2013), by kymatio.

    depth: the number of scales J; sides shrink by 2^J, and each channel becomes 1 + 8 J + 32 J (J -
    1) channels, 81 for J = 2 as in Oyallon and Mallat 2015. Every image is transformed by itself,
    so that a linear model of the features is private if its training is (Tramer and Boneh 2021).
    normalization: of the pixels before the transform, by public constants. It scales the features,
    and so the noise beside them if `normalization=private` measures their statistics.
    """

    depth: int = 2
    normalization: Normalization | None = None

    def __post_init__(self) -> None:
        integer("features.depth", self.depth, most=5)

    @property
    def channels(self) -> int:
        """The number of features for one channel at one position."""
        return 1 + ANGLES * self.depth + ANGLES**2 * self.depth * (self.depth - 1) // 2

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

    def transform(self, sides: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """A function from images [B, C, H, W] to features [B, C * channels, H / 2^J, W / 2^J]."""
        # The part for 3D, which kymatio.torch imports as well, needs an older SciPy.
        name = "kymatio.scattering2d.frontend.torch_frontend"
        kymatio = library(name, "features=scattering", extra="features")
        network = kymatio.ScatteringTorch2D(J=self.depth, shape=sides, L=ANGLES)
        normalize = self.normalization or (lambda images: images)
        return lambda images: network(normalize(images).contiguous()).flatten(1, 2)


@dataclass(frozen=True)
class Scattered(DerivedDataset):
    """`base` with scattering features as inputs [C, H, W], computed once and cached on disk.

    The name of a cached file contains a checksum of the images, so that a data set drawn by a seed
    has a file for each draw.
    """

    base: Dataset
    features: Scattering

    def __post_init__(self) -> None:
        self.features.shape_of(self.base)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features.shape_of(self.base)

    @property
    def note(self) -> str:
        normalization = self.features.normalization
        return normalization.note if normalization else ""

    def load(self, folder: Path, seed: int) -> Data:
        """Load `base`, and its features: 1.1 GB and some minutes for MNIST, 3.7 GB for CIFAR-10."""
        data = self.base.load(folder, seed)
        train, test = (self._transformed(split, folder) for split in (data.train, data.test))
        return replace(data, train=train, test=test)

    def _transformed(self, split: Split, folder: Path) -> Split:
        pixels = np.ascontiguousarray(split.inputs.numpy())
        name = hashlib.sha256(pixels.data).hexdigest()[:16]
        if self.features.normalization:
            constants = repr(self.features.normalization).encode()
            name += f"_{hashlib.sha256(constants).hexdigest()[:8]}"
        path = folder / "features" / f"scattering{self.features.depth}_{name}.npy"
        ensure_cached([path], lambda parts: self._write(split, parts[0]))
        return replace(split, inputs=torch.from_numpy(np.load(path, mmap_mode="c")))

    def _write(self, split: Split, path: Path) -> None:
        transform = self.features.transform(self.base.shape[1:])
        size = (len(split), *self.shape)
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=size)
        for indices in split.batches(AT_ONCE):
            out[indices.numpy()] = transform(split.at(indices).inputs).numpy()
        out.flush()
