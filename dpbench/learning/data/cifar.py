"""CIFAR-10 and CIFAR-100: what does a colour photograph of 32 x 32 pixels show?"""

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch, write_member
from dpbench.learning.data.fetch.pickled import read_images

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


def _archive(name: str, md5: str) -> Source:
    return Source(name, f"md5:{md5}", PAGE, (f"https://www.cs.toronto.edu/~kriz/{name}",))


def _member(path: str, md5: str) -> Source:
    return Source(path, f"md5:{md5}", PAGE)


ARCHIVE_10 = _archive("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
TRAIN_10 = (
    _member("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
    _member("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
    _member("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
    _member("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
    _member("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
)
TEST_10 = (_member("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),)

ARCHIVE_100 = _archive("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85")
TRAIN_100 = (_member("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),)
TEST_100 = (_member("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),)


@dataclass(frozen=True)
class Cifar10:
    """60,000 photographs in the publishers' split; the groups are the ten classes.

    Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    name = "cifar10"
    shape = (3, 32, 32)
    task = "classification"
    classes = 10
    groups = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    train_size = 50_000
    class_sizes = (5_000.0,) * 10
    notes = ()

    def load(self, folder: Path, seed: int) -> Data:
        """Read six batches below `folder`, or download them (170 MB); the seed is not used."""
        unpack(ARCHIVE_10, (*TRAIN_10, *TEST_10), folder)
        train, test = (_split(part, folder, "labels") for part in (TRAIN_10, TEST_10))
        return Data(*(Split(s.inputs, s.targets, s.targets) for s in (train, test)))


@dataclass(frozen=True)
class Cifar100:
    """60,000 photographs of a hundred classes in the publishers' split; all are one group.

    The labels are the fine ones. Source: Krizhevsky 2009.
    """

    name = "cifar100"
    shape = (3, 32, 32)
    task = "classification"
    classes = 100
    groups = ("all",)
    train_size = 50_000
    notes = ()

    def load(self, folder: Path, seed: int) -> Data:
        """Read two batches below `folder`, or download them (169 MB); the seed is not used."""
        unpack(ARCHIVE_100, (*TRAIN_100, *TEST_100), folder)
        return Data(*(_split(part, folder, "fine_labels") for part in (TRAIN_100, TEST_100)))


def unpack(archive: Source, members: Iterable[Source], folder: Path) -> None:
    """Extract missing members below `folder` from the archive, downloaded if necessary."""
    absent = [member for member in members if not (folder / member.path).exists()]
    if not absent:
        return
    with tarfile.open(fetch(archive, folder)) as tar:
        for member in absent:
            write_member(tar.extractfile(member.path), folder / member.path)


def _split(sources: Iterable[Source], folder: Path, labels: str) -> Split:
    images, targets = zip(*(read_images(s, folder, labels) for s in sources), strict=True)
    classes = torch.from_numpy(np.concatenate(targets))
    return Split(torch.from_numpy(np.concatenate(images)), classes, torch.zeros_like(classes))
