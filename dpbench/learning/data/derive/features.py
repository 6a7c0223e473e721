"""Features of inputs: each from its own input alone, computed once and kept beside the data."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.dataset import (
    Dataset,
    DerivedDataset,
    class_sizes_of,
    of_base,
    people_of,
)
from dpbench.learning.data.derive.fewer import Fewer
from dpbench.learning.data.derive.unbalanced import Unbalanced
from dpbench.learning.data.examples import Data, Split
from dpbench.system.files import replace_file
from dpbench.system.progress import counting

AT_ONCE = 256
"""The number of inputs read at once, and the most that an interruption loses."""


class Features(Protocol):
    """What turns the inputs of a data set into features."""

    dtype: Any
    """NumPy's type of the features in a file."""

    @property
    def note(self) -> str:
        """The note on privacy, or ""."""

    def shape_of(self, dataset: Dataset) -> tuple[int, ...]:
        """The shape of an input's features; UserError for data that have none."""

    def check_files(self) -> None:
        """UserError if a file is missing that the features are computed with."""

    def file_name(self, inputs: str) -> str:
        """The name of a file of features, without suffix. inputs: the checksum of the inputs."""

    def extractor(self, dataset: Dataset, device: torch.device) -> Callable[[Tensor], Tensor]:
        """A function from inputs [B, ...] to features [B, ...], both on the CPU; each example's
        features depend on that example alone. device: computes them, if it is of use."""


def with_features(dataset: Dataset, features: Features, device: str) -> Dataset:
    """The data set with features as inputs.

    Where it is a choice of another's examples, the features are those of all of them, which are
    computed once for all choices.
    """
    if isinstance(dataset, Fewer | Unbalanced):
        return replace(dataset, base=with_features(dataset.base, features, device))
    return WithFeatures(dataset, features, device)


@dataclass(frozen=True)
class WithFeatures(DerivedDataset):
    """`base` with features as inputs, computed once and cached on disk.

    The name of a cached file contains a checksum of the inputs, so that a data set drawn by a seed
    has a file for each draw. device: as that of a run; `auto` is the first GPU if there is one.
    """

    base: Dataset
    features: Features
    device: str = "auto"

    def __post_init__(self) -> None:
        self.features.shape_of(self.base)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features.shape_of(self.base)

    @property
    def note(self) -> str:
        return self.features.note

    vocabulary = lengths = None
    bounded = 0
    train_people = of_base(people_of)
    class_sizes = of_base(class_sizes_of)

    def load(self, folder: Path, seed: int) -> Data:
        """Load `base`, and its features; what an interrupted process has computed is kept."""
        self.features.check_files()
        data = self.base.load(folder, seed)
        train, test = (self._transformed(split, folder) for split in (data.train, data.test))
        return replace(data, train=train, test=test)

    def _transformed(self, split: Split, folder: Path) -> Split:
        pixels = np.ascontiguousarray(split.inputs.numpy())
        name = self.features.file_name(hashlib.sha256(pixels.data).hexdigest()[:16])
        path = folder / "features" / f"{name}.npy"
        ensure_cached([path], lambda parts: self._write(split, path, parts[0]))
        features = torch.from_numpy(np.load(path, mmap_mode="c"))
        return replace(split, inputs=features, lengths=None)

    def _write(self, split: Split, path: Path, part: Path) -> None:
        rows = _UnfinishedFile(path, (len(split), *self.shape), self.features.dtype)
        left = split.batches(AT_ONCE)[rows.done :]
        first_gpu = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(first_gpu if self.device == "auto" else self.device)
        extract = self.features.extractor(self.base, device)
        with counting(f"features: batches of {AT_ONCE}", len(left)) as count:
            for indices in left:
                rows.write(indices.numpy(), extract(split.at(indices).inputs).numpy())
                count()
        rows.move(part)


class _UnfinishedFile:
    """An array that is written in batches beside `path`; those of an interrupted process stay.

    done: the number of batches that are written.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any):
        self._file = path.with_name(f"{path.stem}.unfinished.npy")
        self._number = path.with_name(f"{path.stem}.unfinished.batches")
        open_file = np.lib.format.open_memmap
        self.done = 0
        with suppress(OSError, ValueError):  # nothing is there, or it is damaged
            self._rows = open_file(self._file, mode="r+")
            if (self._rows.shape, self._rows.dtype) == (shape, dtype):
                self.done = int(self._number.read_bytes())
        if not self.done:
            self._number.unlink(missing_ok=True)
            self._rows = open_file(self._file, mode="w+", dtype=dtype, shape=shape)

    def write(self, places: np.ndarray, values: np.ndarray) -> None:
        """Write the next batch [B, ...] to the rows `places` [B]."""
        self._rows[places] = values
        self._rows.flush()
        self.done += 1
        replace_file(self._number, str(self.done).encode())

    def move(self, path: Path) -> None:
        """Give the finished file another name."""
        self._file.replace(path)
        self._number.unlink(missing_ok=True)
