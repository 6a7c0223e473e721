"""Any data set with some mislabelled training examples, each included by a fair coin.

They are the targets of membership inference: a model that fits a wrong label has memorised it. The
label of a text is, to a language model, its words: wrong ones are random, a planted secret (the
canaries of Carlini et al. 2019, "The secret sharer").
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpbench.learning.data.dataset import Dataset, DerivedDataset, of_base, people_of
from dpbench.learning.data.examples import Data, Split, Targets
from dpbench.learning.data.splits import joined
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import integer

SPLIT_SEED = 0
"""The seed of the split, the targets and their labels, the same in all runs of an attack."""


@dataclass(frozen=True)
class Mislabelled(DerivedDataset):
    """`base` with `number` training examples mislabelled, each kept for training by a fair coin.

    They are taken equally from all groups; a group that has too few gives all it has. Split,
    targets and wrong labels are the same for all seeds; only the coins depend on the seed.
    train_size stays that of `base`, so that sampling rate, steps and epsilon are those of its runs;
    about number/2 examples fewer are trained on.
    """

    base: Dataset
    number: int

    train_people = of_base(people_of)

    def __post_init__(self) -> None:
        if self.base.task == "regression":
            raise UserError(f"{self.base.name} has no classes to mislabel: use mislabelled=null.")
        integer("mislabelled", self.number, len(self.groups), self.base.train_size // 2)

    @property
    def note(self) -> str:
        wrong = "random tokens" if self.task == "language_model" else "a wrong label"
        return (
            f"{self.number} training examples have {wrong}, and a coin decides which are "
            "trained on; the sampling rate counts all of them."
        )

    def load(self, folder: Path, seed: int) -> Data:
        data = self.base.load(folder, SPLIT_SEED)
        draws = numpy_generator(SPLIT_SEED, "targets")
        chosen = self._chosen(data.train.groups, draws)
        examples = self._with_wrong_labels(data.train.take(chosen), draws)
        included = torch.from_numpy(numpy_generator(seed, "coins").random(len(chosen)) < 0.5)
        others = torch.ones(len(data.train), dtype=torch.bool)
        others[chosen] = False
        train = joined(data.train.take(others), examples.take(included))
        return replace(data, train=train, targets=Targets(examples, included))

    def _chosen(self, groups: Tensor, draws: np.random.Generator) -> Tensor:
        per_group = self.number // len(self.groups)
        members = [np.flatnonzero(groups.numpy() == group) for group in range(len(self.groups))]
        return torch.from_numpy(np.concatenate([draws.permutation(m)[:per_group] for m in members]))

    def _with_wrong_labels(self, targets: Split, draws: np.random.Generator) -> Split:
        if self.task == "language_model":
            return replace(targets, inputs=self._with_random_tokens(targets.inputs, draws))
        offsets = torch.from_numpy(draws.integers(1, self.classes, len(targets)))
        return replace(targets, targets=(targets.targets + offsets) % self.classes)

    def _with_random_tokens(self, inputs: Tensor, draws: np.random.Generator) -> Tensor:
        """Texts [m, 2, T] in which each predicted token is any but the padding."""
        tokens, predicted = inputs.unbind(1)
        drawn = torch.from_numpy(draws.integers(1, self.vocabulary, tokens.shape)).to(tokens)
        drawn = (drawn + self.padding) % self.vocabulary
        return torch.stack([torch.where(predicted == 1, drawn, tokens), predicted], 1)
