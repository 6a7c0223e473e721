"""The user's own images as data sets: class folders, or images that `datasets` loads."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpbench.learning.data.custom import hub
from dpbench.learning.data.custom.checksums import source_path, verified
from dpbench.learning.data.custom.image_files import MODES, images_in, stacked
from dpbench.learning.data.custom.own_rows import Rows
from dpbench.learning.data.dataset import Data, Split
from dpbench.system.errors import UserError
from dpbench.system.validate import integer

MAX_PIXELS = 1_024
"""The largest side of an image."""


@dataclass(frozen=True, kw_only=True)
class ImageRows(Rows):
    """Images with a class; the groups are the classes.

    size: the side of the square that each is scaled to, in pixels. channels: 3 for colours, or 1.
    """

    size: int
    channels: int

    task = "classification"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("dataset.size", self.size, most=MAX_PIXELS)
        if self.channels not in MODES:
            raise UserError(f"dataset.channels must be 3 or 1, got {self.channels}.")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self._public,)

    @abstractmethod
    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 [n, channels, size, size] and classes int64 [n], verified."""

    def load(self, folder: Path, seed: int) -> Data:
        """Read the images, wherever the data folder is; UserError if they have changed."""
        images, labels = self.read()
        if len(labels) != self.rows:
            raise UserError(f"{self.name} has {len(labels)} images, not {self.rows}.")
        classes = torch.from_numpy(labels)
        examples = Split(torch.from_numpy(images), classes, classes)
        train, test = map(torch.from_numpy, self.order(seed))
        return Data(examples.take(train), examples.take(test))


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageRows):
    """Images in a folder with a subfolder for each class, or with folders `train` and `test` of
    such. folder: its path."""

    folder: str | None = None

    needs = "dataset.folder=FOLDER"

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        place = source_path("dataset.folder", self.folder, "folder")
        verified("dataset.folder", place, self.checksum)
        paths, labels = zip(*images_in(place).files, strict=True)
        images = ((str(path), path) for path in paths)
        return stacked(images, self.size, self.channels), np.array(labels, "int64")


@dataclass(frozen=True, kw_only=True)
class HubImages(ImageRows):
    """Images that the `datasets` library loads; see `HubTable`. image, target: their columns."""

    path: str | None = None
    revision: str | None
    part: str
    test_part: str | None = None
    image: str
    target: str

    needs = "dataset.path=NAME (with dataset.revision=COMMIT) or a folder"

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        rows = hub.read(vars(self)).all
        labels = hub.labels(rows, self.target)[1]
        return stacked(hub.images(rows, self.image), self.size, self.channels), labels
