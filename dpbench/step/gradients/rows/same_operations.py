"""Whether a pass does the same with any number of rows.

A model's Python code sees how many examples are in its batch: `x / len(x)`, or another branch above
forty. So the operations of a pass are compared with those of a pass of FEW examples. They must be
the same ones, with the same numbers; only shapes may grow, in proportion to the number of rows.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from dpbench.step.gradients.rows.dispatch import DispatchMode
from dpbench.step.gradients.rows.rules import Call, RowAxis, storage_of

aten = torch.ops.aten

FEW = 2
"""Examples of the pass that others are compared with: with one, operations may broadcast."""

SHAPING = """_reshape_alias _unsafe_view empty empty_permuted empty_strided expand full new_empty
    new_empty_strided new_full new_ones new_zeros ones rand randint randn repeat split_with_sizes
    view zeros"""
"""Operations that are given shapes, in which there may be a number of rows."""

SHAPED = {getattr(aten, name) for name in SHAPING.split()}

NUMBER = {
    aten.arange.default: 0,
    aten.arange.start: 1,
    aten.eye.default: 0,
    aten.native_group_norm.default: 3,
    aten.split.Tensor: 1,
}
"""Which argument of other operations may be a number of rows."""


class Seen(NamedTuple):
    """What stands for a tensor: the number of its storage, in the order in which the pass sees
    them, and its place there; whether it has a gradient; and its values if the pass has not
    computed them, unless a module keeps them."""

    storage: int
    shape: torch.Size
    places: tuple[int, ...]
    slope: bool
    values: Tensor | None


class Operation(NamedTuple):
    """An operation, whether its gradient is taken, what it is given, and the shapes of its results;
    for tensors, what is `Seen` of them."""

    func: Any
    slope: bool
    given: list[object]
    results: list[torch.Size]


class Grown(NamedTuple):
    """The arguments and results of an operation whose shapes grow with the number of rows, with the
    first axis that does: None for results that do not."""

    given: list[tuple[Tensor, RowAxis]]
    results: list[tuple[Tensor, RowAxis | None]]


class SameOperations:
    """Compares the operations of a pass, one after the other, with those of a pass of few rows.

    rows, few_rows: the numbers of rows of both. kept: tensors that are not computed in a pass and
    are no constants of its code. few: the other's operations; None to note them here, in `noted`.
    differ: whether any was another.
    """

    def __init__(
        self, rows: int, few_rows: int, kept: Iterable[Tensor], few: Sequence[Operation] | None
    ):
        self._rows, self._few_rows, self._few = rows, few_rows, few
        self._storages: dict[int, tuple[int, int, StorageWeakRef]] = {}
        for x in kept:
            self._place(x)
        self.noted: list[Operation] = []
        self.differ = False

    def end(self) -> None:
        """The pass ends."""
        self.differ |= self._few is not None and len(self.noted) != len(self._few)

    def add(self, call: Call, out: Any) -> Grown | None:
        """An operation and its result; None if it can't be compared."""
        results = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        arguments = *call.args, *call.kwargs, *call.kwargs.values()
        given = [self._seen(x) for x in arguments]
        shapes = [x.shape for x in results]
        operation = Operation(call.func, torch.is_grad_enabled(), given, shapes)
        for x in results:
            self._place(x)
        self.noted.append(operation)
        if self._few is None or self.differ:
            return None
        place = len(self.noted) - 1
        if place >= len(self._few) or not self._same(operation, few := self._few[place]):
            self.differ = True
            return None
        before = [x for x in _flat(few.given) if isinstance(x, Seen)]
        return Grown(
            [
                (x, axis)
                for x, other in zip(call.tensors, before, strict=True)
                if (axis := self._axis(x, other.shape))
            ],
            [(x, self._axis(x, s)) for x, s in zip(results, few.results, strict=True)],
        )

    def _place(self, x: Tensor) -> tuple[int, int]:
        """The number of a tensor's storage, and where x begins there, after the first one seen."""
        key, start = storage_of(x), int(x.storage_offset())
        if key not in self._storages:  # while a reference is kept, no other is at its address
            storage = StorageWeakRef(x.untyped_storage())
            self._storages[key] = len(self._storages), start, storage
        number, first, _ = self._storages[key]
        return number, start - first

    def _seen(self, x: object) -> object:
        if isinstance(x, (list, tuple)):
            return [*map(self._seen, x)]
        if not isinstance(x, Tensor):
            return x
        known = x.requires_grad or storage_of(x) in self._storages
        number, start = self._place(x)
        values = None if known else x.detach().clone()
        return Seen(number, x.shape, (start, *map(int, x.stride())), x.requires_grad, values)

    def _same(self, one: Operation, few: Operation) -> bool:
        if one[:2] != few[:2] or len(one.results) != len(few.results):
            return False
        number, shaped = NUMBER.get(one.func), one.func.overloadpacket in SHAPED
        return (
            len(one.given) == len(few.given)
            and all(map(self._fits, one.results, few.results))
            and all(
                self._equal(x, y, i == number or (shaped and isinstance(x, list)))
                for i, (x, y) in enumerate(zip(one.given, few.given, strict=True))
            )
        )

    def _equal(self, x: object, y: object, grows: bool) -> bool:
        """Whether two arguments are the same, but for the number of rows in what grows with it."""
        match x, y:
            case Seen(), Seen():
                if (x.storage, x.slope) != (y.storage, y.slope):
                    return False
                if not (self._fits(x.shape, y.shape) and self._fits(x.places, y.places)):
                    return False
                if x.values is None or y.values is None:
                    return x.values is y.values
                return x.shape != y.shape or torch.equal(x.values, y.values)
            case list(), list():
                pairs = zip(x, y, strict=False)
                return len(x) == len(y) and all(self._equal(m, n, grows) for m, n in pairs)
            case int(), int() if grows:
                return x == y or x * self._few_rows == y * self._rows
        return type(x) is type(y) and bool(x == y or (x != x and y != y))

    def _fits(self, x: Sequence[int], y: Sequence[int]) -> bool:
        """Whether numbers are those of the other pass, but for the number of rows."""
        few, rows = self._few_rows, self._rows
        pairs = zip(x, y, strict=False)
        return len(x) == len(y) and all(m == n or m * few == n * rows for m, n in pairs)

    def _axis(self, x: Tensor, few: torch.Size) -> RowAxis | None:
        """The first axis of x that grows with the number of rows."""
        for dim, (size, other) in enumerate(zip(x.shape, few, strict=True)):
            if size != other:
                return RowAxis(dim, other // self._few_rows)
        return None


class ComparedPass(DispatchMode):
    """Within the context, compares operations with those of a pass in which rows were followed.

    constants: for the place of an operation on rows, which of what it is given, and grows with
    their number, depends on none of them. by_position: whether such a constant has other values for
    other rows. packs: whether Python code stores what the backward pass needs.
    """

    def __init__(self, operations: SameOperations, constants: Mapping[int, Collection[int]]):
        super().__init__()
        self._operations, self._constants = operations, constants
        self.by_position = self.reads_values = self.packs = False

    def read(self, tensors: Sequence[Tensor]) -> None:
        """Note that Python reads values of tensors."""
        self.reads_values = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        with torch._C.DisableTorchFunction():  # only what the model's own code calls is followed
            self.packs |= torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
            out = func(*args, **(kwargs or {}))
            grown = self._operations.add(Call(func, args, kwargs or {}, lambda _: None), out)
            constants = self._constants.get(len(self._operations.noted) - 1, ())
            if grown and not all(same_for_all_rows(*grown.given[i]) for i in constants):
                self.by_position = True
            return out


def same_for_all_rows(x: Tensor, axis: RowAxis) -> bool:
    """Whether x has the same values in each row along that axis."""
    rows = x.movedim(axis.dim, 0).unflatten(0, (-1, axis.inner))
    return bool((rows == rows[:1]).all())


def _flat(given: list[object]) -> list[object]:
    return [y for x in given for y in (_flat(x) if isinstance(x, list) else [x])]
