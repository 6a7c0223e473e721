"""MNIST: which digit does an image of 28 x 28 pixels show?"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch


def _source(name: str, md5: str) -> Source:
    return Source(
        path=f"MNIST/raw/{name}",
        checksum=f"md5:{md5}",
        page="http://yann.lecun.com/exdb/mnist/",
        urls=(
            f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz",
            f"http://yann.lecun.com/exdb/mnist/{name}.gz",
        ),
    )


TRAIN = (
    _source("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
    _source("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
)
TEST = (
    _source("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
    _source("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
)


@dataclass(frozen=True)
class Mnist:
    """70,000 grey images of digits in the publishers' split; the groups are the ten classes."""

    name = "mnist"
    shape = (1, 28, 28)
    task = "classification"
    classes = 10
    groups = tuple("0123456789")
    class_sizes = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
    train_size = 60_000
    notes = ()

    def load(self, folder: Path, seed: int) -> Data:
        """Read the four files below `folder`, or download them (11 MB); the seed is not used."""
        return Data(train=_split(TRAIN, folder), test=_split(TEST, folder))


def read_idx(path: Path) -> Tensor:
    """The array in an idx file, uint8, with the shape in its header."""
    content = path.read_bytes()
    axes = content[3]
    sizes = np.frombuffer(content, ">u4", axes, offset=4).astype(int)
    pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    return torch.from_numpy(pixels.reshape(sizes).copy())


def _split(sources: tuple[Source, Source], folder: Path) -> Split:
    images, labels = (read_idx(fetch(source, folder)) for source in sources)
    targets = labels.long()
    return Split(images.unsqueeze(1), targets, targets)
