"""Digits: which digit does an image of 8 x 8 pixels show? Real data that need no download."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.splits import check_test_share, held_out, shuffle_and_split
from dpbench.system.paths import installed_folder

CLASS_SIZES = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
ROWS = sum(CLASS_SIZES)

FILE = Path("datasets", "data", "digits.csv.gz")


@dataclass(frozen=True)
class Digits:
    """1,797 grey images of digits from scikit-learn; the groups are the ten classes.

    test_share: of the images, after a shuffle. Source: Alpaydin and Kaynak, UCI, 1998.
    """

    test_share: float

    name = "digits"
    shape = (1, 8, 8)
    task = "classification"
    classes = 10
    groups = tuple("0123456789")
    notes = ("The publishers' split is not used: the test images are drawn by seed.",)

    def __post_init__(self) -> None:
        check_test_share(self.test_share, ROWS)

    @property
    def train_size(self) -> int:
        return ROWS - held_out(ROWS, self.test_share)

    @property
    def class_sizes(self) -> tuple[float, ...]:
        """Expected training images of each class."""
        return tuple(size * self.train_size / ROWS for size in CLASS_SIZES)

    def load(self, folder: Path, seed: int) -> Data:
        """Read the copy in scikit-learn, which is not imported, as that takes a second; `folder` is
        not used."""
        package = installed_folder("sklearn")
        assert package
        rows = np.loadtxt(package / FILE, dtype=np.uint8, delimiter=",")  # 64 pixels and the label
        inputs = torch.from_numpy(rows[:, :-1].reshape(-1, 1, 8, 8) / 16).float()
        targets = torch.from_numpy(rows[:, -1]).long()
        return shuffle_and_split(Split(inputs, targets, targets), self.test_share, seed)
