"""The user's own images as data sets: class folders, or images that `datasets` loads."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from dpbench.learning.data.custom import hub, image_files
from dpbench.learning.data.custom.image_files import stacked
from dpbench.learning.data.custom.own_rows import RowSplit
from dpbench.learning.data.custom.source import OwnTable
from dpbench.learning.data.custom.table import groups_of, image_columns, labels_of
from dpbench.learning.data.examples import Split
from dpbench.system.validate import ImageSide


@dataclass(frozen=True, kw_only=True)
class ImageRows(RowSplit):
    """Images with a class; the groups are the classes, unless columns are named.

    size: the side of the square that each is scaled to, in pixels. channels: 3 for colours, or 1.
    target, group: columns, as of a table.
    """

    size: ImageSide
    channels: Literal[3, 1]
    target: str | None = None
    group: str | list[str] | None = field(default=None, hash=False)

    task = "classification"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self._public,)

    def encoded(self, table: OwnTable, train: np.ndarray, test: np.ndarray) -> tuple[Split, float]:
        columns = image_columns(vars(self), table)
        _, labels = labels_of(table, columns.target)
        images = stacked(table.images, self.size, self.channels)
        groups = groups_of(table.frame, columns, "the table")[1] if columns.group else labels
        pixels, classes, grouped = map(torch.from_numpy, (images, labels, groups))
        return Split(pixels, classes, grouped), 1.0


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageRows):
    """Images in a folder with a subfolder for each class, or with folders `train` and `test` of
    such. folder: its path.

    labels: a CSV file with a row for each image, whose name is in the column `image`, and
    labels_checksum: its checksum. Without a target in it, the folders are the classes.
    """

    folder: str | None = None
    labels: str | None = None
    labels_checksum: str | None = None
    image: str = "file"

    needs = "dataset.folder=FOLDER"

    def read(self) -> OwnTable:
        return image_files.read(vars(self))


@dataclass(frozen=True, kw_only=True)
class HubImages(hub.HubRows, ImageRows):
    """Images that the `datasets` library loads. image, target: their columns."""

    image: str
    target: str

    needs = "dataset.path=NAME (with dataset.revision=COMMIT) or a folder"
