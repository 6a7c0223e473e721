"""Any data set with a validation split instead of its test set."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from dpbench.learning.data.dataset import Dataset, DerivedDataset, people_of
from dpbench.learning.data.examples import Data
from dpbench.learning.data.splits import drawn, held_out, held_out_together
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import fraction


@dataclass(frozen=True)
class WithValidation(DerivedDataset):
    """`base` with a share of its training examples held out, which replaces the test set.

    They are drawn by the seed, after the split of the data set itself: all or none of a person,
    where it is known whose they are. The remaining examples are the training set, whose size
    determines sampling rate, steps and epsilon.
    """

    base: Dataset
    share: float

    def __post_init__(self) -> None:
        fraction("validation", self.share)
        if held_out(self.base.train_size, self.share) == 0:
            raise UserError(
                f"validation={self.share} holds out none of the {self.base.train_size} training "
                "examples; choose a larger share."
            )

    @property
    def train_size(self) -> int:
        return self.base.train_size - held_out(self.base.train_size, self.share)

    @property
    def train_people(self) -> int | None:
        people = people_of(self.base)
        return None if people is None else people - held_out(people, self.share)

    @property
    def note(self) -> str:
        return (
            f"A share of {self.share} of the training examples is held out for validation, drawn "
            "by seed: their exact metrics, and what is chosen by them, are outside every epsilon."
        )

    def load(self, folder: Path, seed: int) -> Data:
        data = self.base.load(folder, seed)
        people, draws = data.train.people, numpy_generator(seed, "validation")
        numbers = None if people is None else people.numpy()
        if numbers is None or people_of(self.base) is not None:
            parts = drawn(len(data.train), numbers, self.share, draws)
        else:  # the number of examples is public, and not that of people
            out = held_out_together(numbers, held_out(len(data.train), self.share), draws)
            parts = np.flatnonzero(~out), np.flatnonzero(out)
        train, test = (data.train.take(torch.from_numpy(part)) for part in parts)
        return replace(data, train=train, test=test, tested_on="validation")
