"""Any data set with a validation split instead of its test set."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dpbench.learning.data.dataset import Data, Dataset, DerivedDataset
from dpbench.learning.data.splits import held_out, held_out_together
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
    def note(self) -> str:
        return (
            f"A share of {self.share} of the training examples is held out for validation, drawn "
            "by seed: their exact metrics, and what is chosen by them, are outside every epsilon."
        )

    def load(self, folder: Path, seed: int) -> Data:
        """Load `base`, and split its training set; the test set is not used."""
        data = self.base.load(folder, seed)
        draws, count = numpy_generator(seed, "validation"), held_out(len(data.train), self.share)
        if data.train.people is None:
            order = torch.from_numpy(draws.permutation(len(data.train)))
            parts = order[count:], order[:count]
        else:
            out = torch.from_numpy(held_out_together(data.train.people.numpy(), count, draws))
            parts = (~out).nonzero().flatten(), out.nonzero().flatten()
        train, test = (data.train.take(part) for part in parts)
        return replace(data, train=train, test=test, tested_on="validation")
