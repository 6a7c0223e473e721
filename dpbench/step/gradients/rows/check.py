"""Whether the modules of a model see row i of a batch as their row i."""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import BackwardCFunction

from dpbench.learning.models.architecture import LOSSES, ClassWeighted
from dpbench.step.gradients.kept import (
    CHANGED,
    forgotten,
    modules_of,
    named_tensors,
    own_attributes,
)
from dpbench.step.gradients.modules import RowsMoved, Unsupported
from dpbench.step.gradients.rows.rules import Mixed, RowAxis, storage_of
from dpbench.step.gradients.rows.same_operations import (
    FEW,
    ComparedPass,
    Operation,
    SameOperations,
)
from dpbench.step.gradients.rows.torch_layers import operations_of, settings_of
from dpbench.step.gradients.rows.tracer import Calls, RowTracer, TracedCalls
from dpbench.system.errors import UserError
from dpbench.system.seeds import torch_state_kept


class Kind(NamedTuple):
    """What determines the operations of a pass: what is computed, the settings of a model of
    torch's layers, or the number of rows, and the mode, which has all else."""

    of: object
    layers: str
    rows: int
    mode: tuple[object, ...]


NO_VALUES: Mapping[str, Tensor] = {}

READS = "Python reads values of the examples, by which it may choose what it does with all of them"
CODE = (
    "gradients pass through Python code (a hook or an autograd.Function), which sees all examples"
)
SIZED = (
    "the model does something else with other numbers of examples, so that each one's gradient may "
    "depend on how many there are"
)
CATCHES = (
    "Python catches an error that torch raises for examples, by which it may choose what it does "
    "with all of them"
)
CAUGHT = (
    "the model caught an error that torch raised for an example of a batch (%s), and may have done "
    "something else with all of them; test values before they are used, or use engine=loop."
)


class RowCheck:
    """Follows the rows of a model's passes: of the first of each mode and shape, which determine
    the operations of a pass, as do mode and an example's shape for a model of torch's own layers;
    and of every pass of a model whose Python code may choose them by something else, such as a
    value that it reads. What a pass stores in modules is undone.

    modules: those whose inputs and outputs the engine takes for the batch's, by two hooks on each.
    Their parameters must not be used outside them. few: the rows of FEW examples. alone: why one
    example's gradient may depend on others though all rows stay in their places; "" if nothing was
    seen by which it may.
    """

    alone = ""

    def __init__(self, model: nn.Module, loss: object, modules: Sequence[nn.Module], views: int):
        self.few = FEW * views
        self._model, self._loss, self._modules = model, loss, modules
        self._inside: list[nn.Module] = []
        self._places: list[tuple[int, int, int]] = []  # start and end of a parameter, its module
        self._seen: set[Kind] = set()
        self._few: dict[Kind, Sequence[Operation]] = {}
        self._constants: dict[Kind, Mapping[int, Sequence[int]]] = {}
        self._always = self._stores = self._comparing = False
        self._tracer: RowTracer | None = None

    @contextmanager
    def during(
        self,
        inputs: Tensor,
        others: Sequence[Tensor],
        of: object = None,
        values: Mapping[str, Tensor] = NO_VALUES,
    ) -> Iterator[None]:
        """The context of a pass. inputs [rows, ...], and others that hold the rows likewise.

        of: what is computed; None for losses, with calls of the modules announced by `enter` and
        `leave`. values: those that take the place of the model's parameters.
        """
        if isinstance(inputs, FakeTensor):  # of a pass that is captured, `settled` before
            with self.apart(len(inputs)):
                yield
            return
        kind = self._kind(inputs, others, of)
        if not self._always and (len(inputs) < 2 or kind in self._seen):
            with self.apart(len(inputs)):
                yield
            return
        if not self._always and self._with_few(kind) in self._constants:
            with self._compared(inputs, others, kind, values):
                yield
        else:
            with (
                forgotten(self._model, self._loss) as kept,
                self._followed(inputs, others, kind, values),
            ):
                yield
            self._stores |= kept.stores
        self._seen.add(kind)

    def few_first(self, inputs: Tensor, others: Sequence[Tensor], of: object = None) -> bool:
        """Whether a pass of few rows is to be followed before that of these: the operations of all
        passes of one mode and shape must be those of that one, or, if Python code chooses them by
        something else each time, of one just before."""
        if len(inputs) <= self.few or isinstance(inputs, FakeTensor):
            return False
        kind = self._kind(inputs, others, of)
        if kind.layers:
            return False
        return self._always or (kind not in self._seen and self._with_few(kind) not in self._few)

    def settled(self, inputs: Tensor, targets: Tensor) -> Hashable | None:
        """What determines the operations of a pass, and all that they take but its batch and the
        parameters; None unless one was followed, and nothing was seen by which they may be others
        in the next."""
        kind = self._kind(inputs, [targets])
        if kind not in self._seen or self.alone or self._always:
            return None
        return kind, settings_of(self._model), *map(id, self._model.buffers())

    def _kind(self, inputs: Tensor, others: Sequence[Tensor], of: object = None) -> Kind:
        plain = {*map(type, (inputs, *others))} == {Tensor}
        ours = any(self._loss is loss for loss in LOSSES.values())
        losses = of is None and (ours or type(self._loss) is ClassWeighted)
        known = plain and (losses or of is self._model)
        layers = known and operations_of(self._model, hooks=2 * len(self._modules))
        mode: tuple[object, ...] = (self._model.training, inputs.shape[1:])
        if layers:
            return Kind(of, layers, 0, mode)
        casts = torch.is_autocast_enabled(inputs.device.type)
        mode += (torch.is_grad_enabled(), casts, inputs.dtype, inputs.stride())
        return Kind(of, "", len(inputs), mode)

    def _with_few(self, kind: Kind) -> Kind:
        """The same with few rows."""
        return kind._replace(rows=self.few)

    @contextmanager
    def apart(self, rows: int) -> Iterator[None]:
        """The context of a pass that is not followed; raises UserError if Python caught an error of
        one of several rows."""
        undone = self._stores or self._always
        with (
            forgotten(self._model, self._loss, by_value=self._always) if undone else nullcontext(),
            Calls() as calls,
        ):
            yield
        if calls.error and rows > 1:
            raise UserError(CAUGHT % calls.error)

    @contextmanager
    def _followed(
        self, inputs: Tensor, others: Sequence[Tensor], kind: Kind, values: Mapping[str, Tensor]
    ) -> Iterator[None]:
        """The context of a pass that is followed."""
        before = _python_state(self._model, self._loss)
        kept = self._kept(values)
        self._places = sorted(
            (p.data_ptr(), p.data_ptr() + p.nbytes, position)
            for position, module in enumerate(self._modules)
            for p in module.parameters()
            if p.requires_grad and p.numel()
        )
        observe = self._refuse_use_outside if kind.of is None else lambda _: None
        few = self._few.get(self._with_few(kind))
        given = [inputs, *others, *(x for _, x in kept)]
        operations = SameOperations(len(inputs), self.few, given, few)
        self._tracer = tracer = RowTracer(len(inputs), observe, operations)
        for x in (inputs, *others):
            tracer.mark(x)
        try:
            with TracedCalls(tracer) as calls, tracer:
                yield
        finally:
            self._tracer = None
            self._inside.clear()
        for name, x in kept:
            if storage_of(x) in tracer.written:
                raise UserError(CHANGED % name)
        after = _python_state(self._model, self._loss)
        self._always |= tracer.reads_values or after != before
        operations.end()
        if kind.rows == self.few:
            self._few[kind] = operations.noted
        elif few and not operations.differ:
            self._constants[self._with_few(kind)] = tracer.constants
        elif few:
            self.alone = SIZED
        if calls.hooks or tracer.packs:
            self.alone = CODE
        if calls.error:
            self.alone = CATCHES
        if tracer.reads_rows:
            self.alone = READS

    @contextmanager
    def _compared(
        self, inputs: Tensor, others: Sequence[Tensor], kind: Kind, values: Mapping[str, Tensor]
    ) -> Iterator[None]:
        """The context of a pass that does the same as one that was followed, with another number of
        rows."""
        before = _python_state(self._model, self._loss)
        kept = [inputs, *others, *(x for _, x in self._kept(values))]
        few = self._with_few(kind)
        operations = SameOperations(len(inputs), self.few, kept, self._few[few])
        mode = ComparedPass(operations, self._constants[few])
        with forgotten(self._model, self._loss), TracedCalls(mode) as calls, mode:
            self._comparing = True
            try:
                yield
            finally:
                self._comparing = False
            after = _python_state(self._model, self._loss)
        operations.end()
        other = operations.differ or mode.by_position or mode.reads_values or calls.hooks
        if other or mode.packs or calls.error or before != after:
            self.alone = SIZED

    def _kept(self, values: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        """The tensors of the model and the loss in a pass, by name."""
        named = named_tensors(self._model, self._loss)
        return [(name, values.get(name, x)) for name, x in named]

    def enter(self, module: nn.Module) -> None:
        """A call of one of the modules begins."""
        self._inside.append(module)

    def leave(self, module: nn.Module, inputs: Tensor, output: Tensor) -> None:
        """A call of a module ends; raises RowsMoved unless row i of its input and output is that of
        the batch. From here on, the first axis of the output holds the rows, even if the input
        depended on none of them."""
        self._inside.remove(module)
        self.require(inputs)
        self.require(output)
        if self._tracer:
            self._tracer.mark(output)

    def require(self, x: Tensor) -> None:
        """Raise RowsMoved if x does not have the rows in their order along its first axis."""
        with torch._C.DisableTorchFunction():  # only what the model's own code calls is followed
            rows = self._tracer and self._tracer.of(x)
        match rows:
            case Mixed(by=by):
                raise RowsMoved(f"{by} does not keep the rows of a batch in their places")
            case RowAxis() if rows != RowAxis(0, 1):
                raise RowsMoved("the first axis of a module's input is not that of the examples")

    def end(self, losses: Tensor) -> None:
        """A pass ends with these losses; raises RowsMoved unless they have the rows in order."""
        self.require(losses)
        if not (self._tracer or self._comparing):
            return
        with torch._C.DisableTorchFunction():  # this reading of the graph sets no hook
            if any(isinstance(node, BackwardCFunction) for node in graph_of(losses)):
                self.alone = CODE

    def _refuse_use_outside(self, tensors: Sequence[Tensor]) -> None:
        """Raise Unsupported for an operation on a module's parameter outside its calls."""
        for x in tensors:
            start = x.data_ptr()
            at = bisect_right(self._places, start, key=lambda place: place[0]) - 1
            if at < 0 or start >= self._places[at][1]:
                continue
            if self._modules[self._places[at][2]] not in self._inside:
                raise Unsupported("a module's parameters are used without calling the module")


@contextmanager
def same_draws(device: torch.device) -> Iterator[None]:
    """The context of a pass after which the next draws the same numbers, from torch's generators,
    Python's or NumPy's."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch_state_kept(device):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _python_state(*parts: object) -> tuple:
    """The states of Python's and NumPy's generators, and the attributes of all modules."""
    drawn = np.random.get_state(legacy=False)["state"]
    attributes = [_state_of(own_attributes(module)) for _, module in modules_of(*parts)]
    return random.getstate(), drawn["key"].tobytes(), drawn["pos"], attributes


def _state_of(value: object, depth: int = 4) -> object:
    """What can be compared of an attribute: numbers, texts, generators, and containers of them."""
    if not depth:
        return None
    match value:
        case bool() | int() | float() | str() | bytes():
            return value
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return repr(value.bit_generator.state)
        case Mapping():
            return [(repr(key), _state_of(part, depth - 1)) for key, part in value.items()]
        case list() | tuple() | set() | frozenset() | deque():
            return [_state_of(part, depth - 1) for part in value]
    return None


def graph_of(x: Tensor) -> Iterator[Any]:
    """The nodes of the graph that x was computed by."""
    nodes, seen = [x.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            nodes += [before for before, _ in node.next_functions]
