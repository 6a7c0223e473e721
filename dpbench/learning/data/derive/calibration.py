"""Any data set with a share of its training examples held out, to fit something after training."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dpbench.learning.data.dataset import Dataset, DerivedDataset, of_base, people_of
from dpbench.learning.data.examples import Data
from dpbench.learning.data.splits import held_out
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import fraction

PURPOSES = {
    "temperature": "the temperature is fitted",
    "conformal": "the prediction sets are calibrated",
}
"""What happens on the examples held out, by the group of settings that asks for it."""


@dataclass(frozen=True)
class WithCalibration(DerivedDataset):
    """`base` with each training example held out with probability `share`, independently.

    So adding or removing an example changes one part by that example, and the other not at all;
    with a permutation other examples would change sides. The coins depend only on the seed.
    train_size and calibration_size are expected numbers, which are public. purpose: one of
    PURPOSES.
    """

    base: Dataset
    share: float
    purpose: str = "temperature"

    random_size = True
    train_people = of_base(people_of)

    def __post_init__(self) -> None:
        fraction(f"{self.purpose}.share", self.share)

    @property
    def calibration_size(self) -> int:
        return held_out(self.base.train_size, self.share)

    @property
    def train_size(self) -> int:
        return self.base.train_size - self.calibration_size

    @property
    def note(self) -> str:
        return (
            f"A coin for each training example holds out a share of {self.share}, on which "
            f"{PURPOSES[self.purpose]} with noise: epsilon covers both parts."
        )

    def load(self, folder: Path, seed: int) -> Data:
        data = self.base.load(folder, seed)
        coins = numpy_generator(seed, "calibration").random(len(data.train)) < self.share
        out = torch.from_numpy(coins)
        return replace(data, train=data.train.take(~out), calibration=data.train.take(out))
