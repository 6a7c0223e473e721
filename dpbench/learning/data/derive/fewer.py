"""Any data set with its first examples only, for networks that are too slow for all of them."""

from dataclasses import dataclass
from pathlib import Path

import torch

from dpbench.learning.data.dataset import Dataset, DerivedDataset
from dpbench.learning.data.examples import Data
from dpbench.system.validate import Count, integer


@dataclass(frozen=True)
class Fewer(DerivedDataset):
    """The first `train` training examples and the first `test` test examples of `base`.

    Which examples these are is the publisher's order, which is public. UserError for more training
    examples than `base` has.
    """

    base: Dataset
    train: Count
    test: Count

    def __post_init__(self) -> None:
        integer("dataset.train", self.train, most=self.base.train_size)

    @property
    def name(self) -> str:
        return f"{self.base.name}_fewer"

    @property
    def train_size(self) -> int:
        return self.train

    @property
    def note(self) -> str:
        return f"The first {self.train} training and {self.test} test examples, of more."

    def load(self, folder: Path, seed: int) -> Data:
        data = self.base.load(folder, seed)
        kept = (data.train, self.train), (data.test, self.test)
        return Data(*(part.take(torch.arange(min(n, len(part)))) for part, n in kept))
