"""Examples that are held: of a batch, of a split, and of a run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


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
