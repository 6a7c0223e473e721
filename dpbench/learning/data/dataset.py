"""What a data set declares before it is read, and how one is derived from another."""

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch as Batch  # plug-ins import these from here
from dpbench.learning.data.examples import Data as Data
from dpbench.learning.data.examples import Lengths
from dpbench.learning.data.examples import Split as Split
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, quoted, typed

Fact = Literal["epsilon", "public", "exact"]
"""How a run comes by a fact of its data: measured with noise, so that epsilon covers it; given by
the user, as public; or read from the data, and no epsilon covers it."""

MOMENTS = "means and deviations"


class Dataset(Protocol):
    """A data set before it is read: everything that the ledger and the model depend on.

    train_size is public configuration. If sub-sampling makes the real number of training examples
    vary with the seed, it is the expected number, which determines the sampling rate.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch axis."""

    @property
    def task(self) -> str:
        """`classification`; `regression`, where targets are numbers; or `language_model`, where
        they are the numbers of tokens that are predicted."""

    @property
    def classes(self) -> int:
        """The number of a model's outputs: the number of classes, or 1 for other tasks."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, in the order of their numbers."""

    @property
    def train_size(self) -> int: ...
    @property
    def notes(self) -> tuple[str, ...]:
        """What the protocol reads from the data without accounting, one sentence each."""

    def load(self, folder: Path, seed: int) -> Data:
        """Read (and if necessary download) the data; `seed` only determines the split."""


DECLARED: dict[str, Any] = {
    "name": str,
    "shape": tuple[int, ...],
    "task": Literal["classification", "regression", "language_model"],
    "classes": Count,
    "groups": tuple[str, ...],
    "train_size": Count,
    "notes": tuple[str, ...],
}
"""The types of what a data set says before it is read."""


def check_declared(dataset: Dataset) -> None:
    """UserError for a data set, such as that of a plug-in, that declares something else."""
    for name, hint in DECLARED.items():
        typed(f"the {name} of {type(dataset).__name__}", getattr(dataset, name), hint)
    if len({*dataset.groups}) < len(dataset.groups):
        raise UserError(f"two groups of {dataset.name} have one name: rename one of them.")


def check_images(group: str, dataset: Dataset) -> None:
    """UserError for data other than images, which a group of settings needs."""
    if len(dataset.shape) != 3:
        raise UserError(
            f"{group} needs images, and the inputs of {dataset.name} are {dataset.shape}; use "
            f"{group}=none."
        )


def check_loaded(dataset: Dataset, data: Data) -> None:
    """UserError for inputs, targets or groups of another shape, type or range than the data set
    declares."""
    if not isinstance(data, Data):
        raise UserError(
            f"the data of {dataset.name} are {quoted(data)}: load must return a "
            "dpbench.data.dataset.Data."
        )
    classify = dataset.task == "classification"
    expected = torch.int64 if classify else torch.float32
    text = vocabulary_of(dataset) is not None
    stored = (torch.int32, torch.int64) if text else (torch.float32, torch.float16, torch.uint8)
    for split in (data.train, data.test):
        shape, kind = tuple(split.inputs.shape[1:]), split.targets.dtype
        if shape != tuple(dataset.shape) or kind != expected:
            raise UserError(
                f"the data of {dataset.name} have inputs of shape {shape} and targets of {kind}, "
                f"not {tuple(dataset.shape)} and {expected}: a file is truncated or is a "
                "different file."
            )
        if split.inputs.dtype not in stored:
            raise UserError(
                f"the inputs of the data of {dataset.name} are {split.inputs.dtype}: store them as "
                f"{' or '.join(map(str, stored))}."
            )
        if not len(split.inputs) == len(split.targets) == len(split.groups):
            raise UserError(
                f"the data of {dataset.name} have {len(split.inputs)} inputs, "
                f"{len(split.targets)} targets and {len(split.groups)} groups: a split has one of "
                "each for every example."
            )
        if classify:
            _check_numbers(dataset, "targets", split.targets, dataset.classes)
        _check_numbers(dataset, "groups", split.groups, max(len(dataset.groups), 1))


def _check_numbers(dataset: Dataset, what: str, numbers: Tensor, names: int) -> None:
    if numbers.dtype != torch.int64 or ((numbers < 0) | (numbers >= names)).any():
        raise UserError(
            f"the {what} of the data of {dataset.name} are not int64 from 0 to {names - 1}: number "
            "them as the data set declares them."
        )


def vocabulary_of(dataset: Dataset) -> int | None:
    """The number of tokens, if inputs are texts; else None.

    Texts are int64 [n, 2, T]: token numbers, and the number of the text (0 or 1) that each token
    belongs to; for a language model, whether each is predicted.
    """
    return getattr(dataset, "vocabulary", None)


def has_pairs(dataset: object) -> bool:
    """Whether its examples are pairs of texts."""
    return getattr(dataset, "pairs", False)


def padding_of(dataset: object) -> int:
    """The number of the padding token of texts: 0 unless the data set says another."""
    return getattr(dataset, "padding", None) or 0


def lengths_of(dataset: object) -> Lengths | None:
    """The lengths to which a data set's texts are cut; None for none."""
    sizes = getattr(dataset, "lengths", None)
    return Lengths(tuple(sizes), padding_of(dataset)) if sizes else None


def calibration_size_of(dataset: Dataset) -> int:
    """The expected number of examples held out to fit something on; 0 if there are none."""
    return getattr(dataset, "calibration_size", 0)


def has_random_size(dataset: Dataset) -> bool:
    """Whether train_size is only the expected number of training examples, drawn by the seed."""
    return getattr(dataset, "random_size", False)


def bounded_of(dataset: Dataset) -> int:
    """The number of first columns of the inputs that public bounds put between -1 and 1."""
    return getattr(dataset, "bounded", 0)


def selected_of(dataset: Dataset) -> tuple[int, ...]:
    """For each column whose categories are selected with noise, which are the last of the inputs,
    the most that are."""
    return getattr(dataset, "selected", ())


def facts_of(dataset: Dataset) -> dict[str, Fact]:
    """The facts of the data that a run depends on, as far as a data set names them."""
    return getattr(dataset, "facts", {})


def people_of(dataset: Dataset) -> int | None:
    """The public number of people that the training examples are of; None if it is not known."""
    return getattr(dataset, "train_people", None)


def class_sizes_of(dataset: Dataset) -> tuple[float, ...]:
    """The published number of training examples of each class, expected where it is drawn by the
    seed; () if there is none."""
    return getattr(dataset, "class_sizes", ())


def of_base(read: Callable[[Dataset], Any]) -> property:
    """An attribute of a derived data set that is what `read` says of its base."""
    return property(lambda derived: read(derived.base))


class DerivedDataset:
    """A data set derived from another: delegates to `base` every property not overridden."""

    base: Dataset

    name = property(attrgetter("base.name"))
    shape = property(attrgetter("base.shape"))
    task = property(attrgetter("base.task"))
    classes = property(attrgetter("base.classes"))
    groups = property(attrgetter("base.groups"))
    train_size = property(attrgetter("base.train_size"))

    vocabulary = of_base(vocabulary_of)
    bounded = of_base(bounded_of)
    selected = of_base(selected_of)
    facts = of_base(facts_of)
    pairs = of_base(has_pairs)
    padding = of_base(padding_of)
    lengths = of_base(lambda base: getattr(base, "lengths", None))
    calibration_size = of_base(calibration_size_of)
    random_size = of_base(has_random_size)

    @property
    def note(self) -> str:
        """A note beside those of `base`; empty for none."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.base.notes, self.note) if self.note else self.base.notes
