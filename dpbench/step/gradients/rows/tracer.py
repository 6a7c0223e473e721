"""Where the rows of a batch are in every tensor of a forward pass.

The book-keeping engine takes row i of each module's input and output for row i of the batch. A
model may sort, select or mix rows inside, and need not do so on the examples of a check. So the
operations of a pass are followed: each either keeps every row in its place, by a rule of
`rules`, or mixes rows, as any without a rule is taken to do.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from dpbench.step.gradients.rows.dispatch import DispatchMode
from dpbench.step.gradients.rows.rules import (
    Call,
    Mixed,
    RowAxis,
    Rows,
    constant,
    rule_of,
    storage_of,
)
from dpbench.step.gradients.rows.same_operations import (
    ComparedPass,
    Grown,
    SameOperations,
    same_for_all_rows,
)
from dpbench.system.errors import first_line

aten = torch.ops.aten

READING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Tags of operations that give Python values, or a shape that follows from them, by which it may
choose what to do next."""

RAISING = {aten._assert_async, aten._linalg_check_errors}
"""Operations that raise by values, as of a singular matrix, which Python may catch."""

_ARRAY: Any = Tensor.__cuda_array_interface__
METHODS = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, _ARRAY.__get__}
METHODS |= {Tensor.__repr__, Tensor.__format__, Tensor.__reduce_ex__}
METHODS |= {Tensor.apply_, Tensor.map_, Tensor.map2_}
METHODS |= {Tensor.data_ptr, Tensor.storage, Tensor.untyped_storage}
"""Methods that do the same without an operation, or give the memory to code that is not torch's."""

BATCH_NORMS = {aten.native_batch_norm, aten.cudnn_batch_norm}
"""Operations that do not declare that they change running statistics."""

EMPTY = {aten.empty, aten.empty_like, aten.empty_permuted, aten.empty_strided, aten.new_empty}
"""Operations that give memory, without values."""

SPLITS = {torch.tensor_split, Tensor.tensor_split}
"""Functions that read values of their other arguments without an operation."""

_OPERATION: Any = Tensor.grad_fn
HOOKED = {Tensor.register_hook, _OPERATION.__get__}
"""Methods by which Python code comes between an operation and its gradient."""


class Spacing(NamedTuple):
    """Where a storage has the rows: byte i belongs to row (i // distance - first) modulo their
    number."""

    distance: int
    first: int


class RowTracer(DispatchMode):
    """Within the context, follows the rows of tensors that were marked.

    What holds the rows is a storage, in which they lie at a fixed distance, so that views of all
    kinds and writes through them need no rules. rows: their number; a single one cannot move, and
    is not followed. observe: called with the tensors of each operation before it. reads_values:
    whether Python or a rule has read a value, on which later operations may depend; reads_rows: one
    that depends on the rows. packs: whether Python code stores what the backward pass needs.
    written: the storages that operations have written to. operations: gets each. constants: those
    of a `ComparedPass`.
    """

    def __init__(
        self,
        rows: int,
        observe: Callable[[list[Tensor]], None],
        operations: SameOperations,
    ):
        super().__init__()
        self.operations = operations
        self.constants: dict[int, list[int]] = {}
        self.rows, self.observe = rows, observe
        self.reads_values = self.reads_rows = self.packs = False
        self.written: set[int] = set()
        self._counted: dict[int, StorageWeakRef] = {}
        self._known: dict[int, tuple[StorageWeakRef, Spacing | Mixed]] = {}

    def mark(self, x: Tensor) -> None:
        """Declare that the first axis of x [rows, ...] holds the rows."""
        if self.rows > 1:
            self._set(x, RowAxis(0, 1))

    def of(self, x: Tensor) -> Rows:
        """Where x has the rows; None if it does not depend on them."""
        known = self._known.get(storage_of(x))
        if known is None:
            return None
        return known[1] if isinstance(known[1], Mixed) else self._axis(x, known[1])

    def read(self, tensors: Sequence[Tensor]) -> None:
        """Note that Python reads values of tensors."""
        self.reads_values = True
        self.reads_rows |= any(self.of(x) is not None for x in tensors)

    def _axis(self, x: Tensor, spacing: Spacing) -> Rows:
        """The axis along which x, a view of a storage with such rows, has all of them in order."""
        distance = spacing.distance
        if (_start(x) // distance - spacing.first) % self.rows:
            return Mixed("a view")
        for dim, (size, step) in enumerate(_axes(x)):
            if not step or distance % step or size % (self.rows * (distance // step)):
                continue
            if self._apart(x, RowAxis(dim, distance // step), distance):
                return RowAxis(dim, distance // step)
        return Mixed("a view")

    def _apart(self, x: Tensor, rows: RowAxis, distance: int) -> bool:
        """Whether each part of x along that axis lies in one row of its storage."""
        axes = _axes(x)
        (_, step), others = axes.pop(rows.dim), [(n, s) for n, s in axes if n > 1]
        within = distance - step + sum((n - 1) * s for n, s in others if s < distance)
        between = [s for _, s in others if s >= distance]
        return _start(x) % distance + within < distance and not any(
            s % (distance * self.rows) for s in between
        )

    def _set(self, x: Tensor, rows: RowAxis | Mixed) -> None:
        key, known = storage_of(x), self._known.get(storage_of(x))
        value: Spacing | Mixed
        if isinstance(rows, Mixed):
            value = rows
        elif x.shape[rows.dim] % (self.rows * rows.inner):
            value = Mixed("a part of the rows")
        elif not (distance := x.stride(rows.dim) * rows.inner * x.itemsize):
            value = Mixed("an expanded axis")
        elif self._apart(x, rows, distance):
            value = Spacing(distance, _start(x) // distance)
        else:
            value = Mixed("a write across rows")
        if known and known[1] != value and not isinstance(value, Mixed):
            value = Mixed("a write in another order")
        self._known[key] = (StorageWeakRef(x.untyped_storage()), value)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        with torch._C.DisableTorchFunction():  # only what the model's own code calls is followed
            return self._operation(Call(func, args, kwargs or {}, self.of))

    def _operation(self, call: Call) -> Any:
        """The result of an operation, which is followed."""
        self.observe(call.tensors)
        self.written |= {storage_of(x) for x in _written(call)}
        self.packs |= torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        before = [rows for x in call.tensors if (rows := self.of(x)) is not None]
        if _gives_values(call):
            self.read(call.tensors)
        out = call.func(*call.args, **call.kwargs)
        if call.func.overloadpacket == aten.arange:
            self._counted[storage_of(out)] = StorageWeakRef(out.untyped_storage())
        grown = self.operations.add(call, out)
        if before and grown:
            before += self._by_position(call, grown.given)
        if grown and (not before or rule_of(call.func) is constant):
            self._follow_constants(call, grown)
        elif before:
            self._follow(call, before, out)
        return out

    def _by_position(self, call: Call, grown: list[tuple[Tensor, RowAxis]]) -> list[Mixed]:
        """What an operation on rows is given that depends on their positions alone: constants of
        which there are as many as rows, and which differ. Those that `indexing` knows may."""
        allowed = self._indices_of_rows(call)
        constants = [
            i
            for i, (x, _) in enumerate(grown)
            if self.of(x) is None and not any(x is index for index in allowed)
        ]
        self.constants[len(self.operations.noted) - 1] = constants
        by_position = [i for i in constants if not same_for_all_rows(*grown[i])]
        return [Mixed(str(call.func.overloadpacket))] * len(by_position)

    def _indices_of_rows(self, call: Call) -> list[Tensor]:
        if call.func.overloadpacket != aten.index:
            return []
        x, indices = call.args[:2]
        rows = self.of(x)
        return indices[rows.dim : rows.dim + 1] if isinstance(rows, RowAxis) else []

    def _follow_constants(self, call: Call, grown: Grown) -> None:
        """Set the rows of an operation's results that are drawn for each row; and of those that
        have one value, computed from as many as there are rows."""
        drawn = (
            torch.Tag.nondeterministic_seeded in call.func.tags or call.func.overloadpacket in EMPTY
        )
        for x, axis in grown.results:
            if axis and drawn:
                self._set(x, axis)
            elif not axis and grown.given:
                self._set(x, Mixed(str(call.func.overloadpacket)))

    def _follow(self, call: Call, rows: list[RowAxis | Mixed], out: Any) -> None:
        """Set the rows of an operation's results, given those of its inputs."""
        self.reads_values |= self._compares(call)
        inputs = {storage_of(x) for x in call.tensors}
        results = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        if not call.func._schema.is_mutable or torch.Tag.inplace_view in call.func.tags:
            results = [x for x in results if storage_of(x) not in inputs]  # others are views
        else:
            results += _written(call)  # not all operations return it
        if not results:
            return
        mixed = next((r for r in rows if isinstance(r, Mixed)), None)
        found = mixed or rule_of(call.func)(call, results[0])
        if found is not None:
            for result in results:
                fits = isinstance(found, Mixed) or found.dim < result.dim()
                self._set(result, found if fits else Mixed(str(call.func.overloadpacket)))

    def _compares(self, call: Call) -> bool:
        """Whether a rule compares values that the next pass may not have: an index of rows, unless
        it was counted up in this pass."""
        if call.func.overloadpacket != aten.index:
            return False
        x, indices = call.args[:2]
        rows = self.of(x)
        if not isinstance(rows, RowAxis) or indices[rows.dim : rows.dim + 1] in ([], [None]):
            return False
        return storage_of(indices[rows.dim]) not in self._counted.keys() - self.written


class Calls(TorchFunctionMode):
    """Within the context, notes by what else than operations on rows a pass may see all examples.

    hooks: whether a hook was set on a tensor, through which its gradient passes, or could be set on
    the operation that computed it. read: whether Python was given values of vectorised examples.
    error: the last error that an operation raised, which Python may have caught; "" without one.
    """

    hooks = read = False
    error = ""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.hooks |= func in HOOKED
        given = args if func in METHODS else (args[1:], kwargs) if func in SPLITS else ()
        for x in tree_leaves(given):
            if isinstance(x, Tensor):
                self._given(x)
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            self.error = first_line(error, type(error).__name__)
            raise

    def _given(self, x: Tensor) -> None:
        """Python is given the values of x."""
        while torch._C._functorch.is_functorch_wrapped_tensor(x):
            self.read |= torch._C._functorch.is_batchedtensor(x)
            x = torch._C._functorch.get_unwrapped(x)


class TracedCalls(Calls):
    """The same, which also tells a tracer of values given to Python."""

    def __init__(self, tracer: RowTracer | ComparedPass):
        super().__init__()
        self._tracer = tracer

    def _given(self, x: Tensor) -> None:
        self._tracer.read([x])


def _start(x: Tensor) -> int:
    """The byte of its storage at which a tensor begins."""
    return int(x.storage_offset()) * x.itemsize


def _axes(x: Tensor) -> list[tuple[int, int]]:
    """The size of each axis, and the number of bytes from one index to the next."""
    return [(size, step * x.itemsize) for size, step in zip(x.shape, x.stride(), strict=True)]


def _gives_values(call: Call) -> bool:
    """Whether an operation gives Python values; an index of integers has results of its shape."""
    if call.func.overloadpacket == aten.index:
        return any(x.dtype in (torch.bool, torch.uint8) for x in call.tensors[1:])
    return call.func.overloadpacket in RAISING or not READING.isdisjoint(call.func.tags)


def _written(call: Call) -> list[Tensor]:
    """The arguments that an operation writes to; batch normalisation does not declare its own."""
    schema = call.func._schema
    names = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    if call.func.overloadpacket in BATCH_NORMS and call.value("training"):
        names = ["running_mean", "running_var"]
    return [x for x in tree_leaves([call.value(name) for name in names]) if isinstance(x, Tensor)]
