"""CelebA: is the person in a photograph a man? The groups are with and without eyeglasses."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, altered_file, fetch, missing_file
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import ImageSide

PAGE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
ATTRIBUTES = Source(
    path="celeba/list_attr_celeba.txt",
    checksum="md5:75e246fa4810816ffd6ee81facbd244c",
    page=PAGE,
)
PARTITION = Source(
    path="celeba/list_eval_partition.txt",
    checksum="md5:d32c9cbf5e040fd4025c592c306e6668",
    page=PAGE,
)
KAGGLE = "https://www.kaggle.com/datasets/jessicali9530/celeba-dataset"
CSV = ".csv"  # of Kaggle's lists; the publishers' are text
IMAGES = "img_align_celeba"

TRAIN, TEST = 0, 2  # the publishers' numbers for the parts; 1 is their validation part


@dataclass(frozen=True)
class CelebA:
    """202,599 colour photographs of faces in the publishers' split.

    size: side of the square images; the published ones have 178 x 218 pixels. target, group: names
    of two of the forty attributes. The images cannot be downloaded by a program: a person puts
    those of the publishers, or the unpacked archive of Kaggle, into the folder `celeba`. Source:
    Liu et al., ICCV 2015.
    """

    size: ImageSide
    target: str
    group: str

    def __post_init__(self) -> None:
        for name in ("target", "group"):
            if not re.fullmatch(r"\w+", getattr(self, name)):
                raise UserError(f"dataset.{name} must be the name of an attribute, such as Male.")

    name = "celeba"
    task = "classification"
    classes = 2
    train_size = 162_770
    notes = ("The 19,867 photographs of the publishers' validation part are left out.",)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    @property
    def groups(self) -> tuple[str, ...]:
        return (f"no_{self.group.lower()}", self.group.lower())

    def load(self, folder: Path, seed: int) -> Data:
        """Read the photographs, packed into one array on first use; the seed is not used.

        Raises a UserError that names the first missing file of the publishers.
        """
        labels = read_attributes(_list(ATTRIBUTES, folder), [self.target, self.group])
        listed = _list(PARTITION, folder)
        parts = read_partition(listed)
        if listed.suffix == CSV and (parts == TRAIN).sum() != self.train_size:
            raise altered_file(listed, KAGGLE)  # the publishers' list has a checksum instead
        return Data(
            train=self._split(folder, labels[parts == TRAIN], "train"),
            test=self._split(folder, labels[parts == TEST], "test"),
        )

    def _split(self, folder: Path, labels: pd.DataFrame, part: str) -> Split:
        images = folder / "celeba" / IMAGES
        nested = images / IMAGES  # in Kaggle's archive
        photographs = [(nested if nested.is_dir() else images) / name for name in labels.index]
        return Split(
            pack(photographs, self.size, folder / "celeba" / f"{part}_{self.size}.npy"),
            torch.from_numpy(labels[self.target].to_numpy("int64")),
            torch.from_numpy(labels[self.group].to_numpy("int64")),
        )


def _list(source: Source, folder: Path) -> Path:
    """The publishers' list, verified, or what Kaggle distributes in its place, if that is there."""
    table = (folder / source.path).with_suffix(CSV)
    return table if table.is_file() else fetch(source, folder)


def read_attributes(path: Path, names: list[str]) -> pd.DataFrame:
    """Whether each photograph has the attributes `names`, indexed by the photograph's name."""
    if path.suffix == CSV:
        table = pd.read_csv(path, index_col=0)
    else:
        table = pd.read_csv(path, sep=r"\s+", skiprows=1)  # the first line is the number of rows
    for name in names:
        if name not in table:
            raise UserError(f"CelebA has no attribute {name!r}: {nearest(name, table)}")
    return table[names] == 1


def read_partition(path: Path) -> pd.Series:
    """The partition number of each photograph, indexed by its name."""
    if path.suffix == CSV:
        return pd.read_csv(path, index_col=0)["partition"]
    return pd.read_csv(path, sep=r"\s+", header=None, index_col=0)[1]


def pack(photographs: Sequence[Path], size: int, path: Path) -> Tensor:
    """The photographs as uint8 [n, 3, size, size], memory-mapped from a file at `path`."""
    ensure_cached([path], lambda parts: _pack(photographs, size, parts[0]))
    packed = np.load(path, mmap_mode="c")
    if len(packed) != len(photographs):
        raise UserError(
            f"{path} has {len(packed)} photographs instead of {len(photographs)}: "
            "delete it to have it created again."
        )
    return torch.from_numpy(packed)


def _pack(photographs: Sequence[Path], size: int, path: Path) -> None:
    shape = (len(photographs), 3, size, size)
    packed = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)

    def fill(row: int) -> None:
        packed[row] = read_photograph(photographs[row], size)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(fill, range(len(photographs))):
            pass  # iterating raises the first error
    packed.flush()


def read_photograph(path: Path, size: int) -> np.ndarray:
    """The largest centred square of a photograph, scaled: uint8 [3, size, size]."""
    try:
        with Image.open(path) as image:
            square = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    except FileNotFoundError as error:
        raise missing_file(path, PAGE, "its publisher does not let programs download it") from error
    except (UnidentifiedImageError, OSError) as error:
        raise altered_file(path, PAGE) from error
    return np.asarray(square).transpose(2, 0, 1)
