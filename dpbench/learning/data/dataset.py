"""The types that all data sets share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from dpbench.system.errors import UserError
from dpbench.system.validate import Count, quoted, typed

Fact = Literal["epsilon", "public", "exact"]
"""How a run comes by a fact of its data: measured with noise, so that epsilon covers it; given by
the user, as public; or read from the data, and no epsilon covers it."""

MOMENTS = "means and deviations"


def tokens_of(texts: Tensor, padding: int) -> Tensor:
    """The numbers of tokens [n] of texts [n, T], without the padding at their ends."""
    return texts.shape[1] - (texts == padding).flip(1).int().cumprod(1).sum(1)


@dataclass(frozen=True)
class Lengths:
    """A few lengths, to the least possible of which each text is cut, whatever the others are.

    sizes: numbers of tokens in ascending order; longer texts stay as they are. padding: the number
    of the padding token.
    """

    sizes: tuple[int, ...]
    padding: int

    def groups(self, texts: Tensor) -> list[tuple[Tensor, int]]:
        """The texts int64 or int32 [n, 2, T] by length: places [m] in order, and the length that
        these are cut to. One group for no texts."""
        most = texts.shape[-1]
        sizes = [*(size for size in self.sizes if size < most), most]
        lengths = tokens_of(texts[:, 0], self.padding)
        chosen = torch.bucketize(lengths, torch.tensor(sizes, device=texts.device))
        groups = [((chosen == k).nonzero().flatten(), size) for k, size in enumerate(sizes)]
        return [group for group in groups if len(group[0])] or groups[:1]


@dataclass(frozen=True)
class Batch:
    """A batch of examples: inputs [B, ...], targets [B], groups [B] int64.

    Targets are classes int64, or float32: numbers for regression, and for a language model how many
    tokens of each text it predicts. Or a batch of users with up to K
    examples each: inputs [B, K, ...], targets [B, K], present [B, K] bool, False for padding, and
    users [B] int64, their numbers.
    """

    inputs: Tensor
    targets: Tensor
    groups: Tensor
    present: Tensor | None = None
    users: Tensor | None = None

    def __len__(self) -> int:
        return self.targets.shape[0]  # a third of the time of len

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with a function applied to each of its tensors."""
        return Batch(*map(change, self._tensors))

    def split(self, size: int | None) -> list["Batch"]:
        """The same examples in order, in physical batches of at most `size`."""
        if size is None or len(self) <= size:
            return [self]
        parts = (t.split(size) for t in self._tensors)
        return [Batch(*part) for part in zip(*parts, strict=True)]

    def cut(self, length: int) -> "Batch":
        """The batch of texts without the tokens after the first `length`, which are padding."""
        return replace(self, inputs=self.inputs[..., :length].contiguous())

    @property
    def sizes(self) -> Tensor:
        """The number of examples of each user [B]; ones for a batch of examples."""
        return torch.ones_like(self.groups) if self.present is None else self.present.sum(1)

    def as_users(self) -> "Batch":
        """The batch itself if it is of users; otherwise each example as a separate user."""
        if self.present is not None:
            return self
        present = torch.ones_like(self.groups, dtype=torch.bool).unsqueeze(1)
        return Batch(self.inputs.unsqueeze(1), self.targets.unsqueeze(1), self.groups, present)

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        tensors = (self.inputs, self.targets, self.groups, self.present, self.users)
        return tuple(tensor for tensor in tensors if tensor is not None)


@dataclass(frozen=True)
class Split:
    """All examples of a split, on one device: inputs [n, ...], targets [n], groups [n].

    Images may be stored as uint8 [n, channels, height, width]; batches of them are scaled to
    [0, 1]. Texts may be stored as int32 [n, 2, T]; batches of them are int64. Features may be
    stored as float16; batches of them are float32. normalize: applied to the inputs of every batch
    afterwards. people: the number [n] int64 of the person that each example is of, or of whatever
    else several examples share, if it is known. lengths: to which texts are cut where they are
    passed through a model.
    """

    inputs: Tensor
    targets: Tensor
    groups: Tensor
    normalize: Callable[[Tensor], Tensor] | None = None
    people: Tensor | None = None
    lengths: Lengths | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def device(self) -> torch.device:
        return self.targets.device

    def to(self, device: torch.device) -> "Split":
        return self._each(lambda t: t.to(device))

    def take(self, indices: Tensor) -> "Split":
        """The examples at `indices` [m] int64, or those that are true in [n] bool, as a new
        split."""
        return self._each(lambda t: t[indices])

    def at(self, indices: Tensor) -> Batch:
        """The examples at `indices` [B] int64."""
        # Several times as fast as an index in brackets.
        inputs, targets, groups = (
            x.index_select(0, indices) for x in (self.inputs, self.targets, self.groups)
        )
        if inputs.dtype == torch.uint8:
            inputs = inputs.float() / 255
        elif inputs.dtype == torch.int32:
            inputs = inputs.long()
        elif inputs.dtype == torch.float16:
            inputs = inputs.float()
        if self.normalize is not None:
            inputs = self.normalize(inputs)
        return Batch(inputs, targets, groups)

    def parts(self, size: int) -> Iterator[tuple[Tensor, Batch]]:
        """All examples, at most `size` at a time and texts of one length: their indices, and the
        batch."""
        every = torch.arange(len(self), device=self.device)
        groups = self.lengths.groups(self.inputs) if self.lengths else [(every, None)]
        for places, length in groups:
            for indices in places.split(size):
                batch = self.at(indices)
                yield indices, batch if length is None else batch.cut(length)

    def batches(self, size: int) -> list[Tensor]:
        """Indices of all examples in order, `size` at a time."""
        return list(torch.arange(len(self), device=self.targets.device).split(size))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Split":
        changed = change(self.inputs), change(self.targets), change(self.groups)
        people = None if self.people is None else change(self.people)
        return Split(*changed, self.normalize, people, self.lengths)


@dataclass(frozen=True)
class Targets:
    """Examples whose membership an attack infers, and whether each is in the training split [m]
    bool."""

    examples: Split
    included: Tensor


@dataclass(frozen=True)
class Data:
    """A loaded data set: the training split and the split that runs are evaluated on.

    tested_on: the name of the latter, under which its metrics are recorded. targets: examples whose
    losses are recorded, for attacks. calibration: examples held out of the training split, to fit
    something on after training. target_unit: what a difference of 1 between targets of regression
    stands for.
    """

    train: Split
    test: Split
    tested_on: str = field(default="test", kw_only=True)
    targets: Targets | None = field(default=None, kw_only=True)
    calibration: Split | None = field(default=None, kw_only=True)
    target_unit: float = field(default=1.0, kw_only=True)


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
