"""ImageNet32: what does a photograph show that was scaled to 32 x 32 pixels?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import BROKEN_ARCHIVE, Source, altered_file
from dpbench.learning.data.fetch.pickled import read_images
from dpbench.system.errors import UserError


def _source(name: str, md5: str) -> Source:
    return Source(
        path=f"imagenet32/{name}",
        checksum=f"md5:{md5}",
        page="https://image-net.org/download-images.php",  # which requires a login
    )


# From several public loaders; the publisher states no checksums for the single files.
TRAIN = (
    _source("train_data_batch_1", "6c4495e65cd24a8c3019857ef9b758ee"),
    _source("train_data_batch_2", "3dd727de4155836807dfc19f98c9fe70"),
    _source("train_data_batch_3", "03d3dc4e850e23e1d526f268a0196296"),
    _source("train_data_batch_4", "876f7e6d6ddb1f52ecb654ffdc8293f6"),
    _source("train_data_batch_5", "c789bcdd1feed34a9bc58598a1a1bf7d"),
    _source("train_data_batch_6", "8ce5344cb1e11f31bc507cae4c856083"),
    _source("train_data_batch_7", "32ecc8ad6c55b1c9cb6cf79a2cc46094"),
    _source("train_data_batch_8", "bdeb6da3d05771121992b48c59c69439"),
    _source("train_data_batch_9", "58417149b5ce31688f805341e7f57b4f"),
    _source("train_data_batch_10", "46ad60a1144aaf97a143914453b0dabb"),
)
TEST = (_source("val_data", "06c02b8b4c8de8b3a36b07859a49de6f"),)


@dataclass(frozen=True)
class ImageNet32:
    """1,331,167 photographs in a thousand classes; the validation photographs are the test set.

    All are one group. Source: Chrabaszcz, Loshchilov and Hutter, "A downsampled variant of
    ImageNet as an alternative to the CIFAR datasets", 2017.
    """

    name = "imagenet32"
    shape = (3, 32, 32)
    task = "classification"
    classes = 1000
    groups = ("all",)
    train_size = 1_281_167
    test_size = 50_000
    notes = ()

    def load(self, folder: Path, seed: int) -> Data:
        """Memory-map the photographs, converted on first use from the publishers' eleven files:
        pickles, or arrays in files of numpy (`train_data_batch_1.npz`).

        The seed is not used. Raises a UserError that names the first missing file.
        """
        return Data(
            train=load_mapped(TRAIN, folder, "train", self.train_size),
            test=load_mapped(TEST, folder, "val", self.test_size),
        )


def load_mapped(sources: Sequence[Source], folder: Path, part: str, size: int) -> Split:
    """`size` photographs, memory-mapped from a file that is created from the sources if missing."""
    images, labels = (folder / "imagenet32" / f"{part}_{name}.npy" for name in ("images", "labels"))
    ensure_cached([images, labels], lambda parts: _convert(sources, folder, size, *parts))
    packed, targets = np.load(images, mmap_mode="c"), torch.from_numpy(np.load(labels))
    if not len(packed) == len(targets) == size:
        raise UserError(
            f"{images} has {len(packed)} photographs and {labels.name} {len(targets)} labels "
            f"instead of {size}: delete both to have them created again."
        )
    return Split(torch.from_numpy(packed), targets, torch.zeros_like(targets))


def _convert(
    sources: Sequence[Source], folder: Path, size: int, images: Path, labels: Path
) -> None:
    shape = (size, *ImageNet32.shape)
    packed = np.lib.format.open_memmap(images, mode="w+", dtype=np.uint8, shape=shape)
    classes: list[int] = []
    for source in sources:
        pixels, numbers = _images(source, folder)
        start = len(classes)
        classes += (numbers - 1).tolist()
        if len(classes) > size:
            raise altered_file(folder / source.path, source.page)
        packed[start : len(classes)] = pixels
    packed.flush()
    with labels.open("wb") as file:
        np.save(file, classes)


def _images(source: Source, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, 3, 32, 32] and labels [n], from 1, of one of the publishers' files."""
    arrays = (folder / source.path).with_suffix(".npz")
    if not arrays.is_file():
        return read_images(source, folder, "labels")
    try:
        with np.load(arrays) as content:
            pixels, numbers = content["data"].reshape(-1, *ImageNet32.shape), content["labels"]
    except (*BROKEN_ARCHIVE, ValueError, OSError) as error:
        raise altered_file(arrays, source.page) from error
    if pixels.dtype != np.uint8 or len(pixels) != len(numbers):
        raise altered_file(arrays, source.page)
    return pixels, numbers
