"""Any data set with one class made rare among the training examples."""

from dataclasses import dataclass
from pathlib import Path

from dpbench.learning.data.dataset import Dataset, DerivedDataset, class_sizes_of
from dpbench.learning.data.examples import Data
from dpbench.learning.data.splits import subsample
from dpbench.system.errors import UserError
from dpbench.system.validate import fraction, integer


@dataclass(frozen=True)
class Unbalanced(DerivedDataset):
    """`base` with training examples of class `label` kept with probability `keep`.

    The test set is unchanged. Protocol: Esipova et al., ICLR 2023, for class 8 of MNIST.
    """

    base: Dataset
    label: int
    keep: float

    random_size = True

    def __post_init__(self) -> None:
        fraction("keep", self.keep)
        if self.base.task != "classification":
            raise UserError(f"{self.base.name} is a regression data set without classes.")
        if not class_sizes_of(self.base):
            raise UserError(f"the sizes of the classes of {self.base.name} are not published.")
        integer(f"label, a class of {self.base.name},", self.label, 0, self.base.classes - 1)

    @property
    def name(self) -> str:
        return f"{self.base.name}_unbalanced"

    @property
    def train_size(self) -> int:
        """Expected number of training examples, rounded down."""
        return int(self.base.train_size - (1 - self.keep) * class_sizes_of(self.base)[self.label])

    @property
    def note(self) -> str:
        return (
            f"Training examples of class {self.label} are kept with probability {self.keep}; the "
            "sampling rate uses the expected number of training examples, from published counts."
        )

    def load(self, folder: Path, seed: int) -> Data:
        data = self.base.load(folder, seed)
        rare = data.train.targets == self.label
        return Data(subsample(data.train, rare, self.keep, seed), data.test)
