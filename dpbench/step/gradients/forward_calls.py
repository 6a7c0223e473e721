"""The calls of a model's modules in its forward pass, recorded by two hooks on each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpbench.step.gradients.backward import Output, product_behind
from dpbench.step.gradients.modules import RowsMoved, TrackedModule, Unsupported
from dpbench.step.gradients.rows import RowCheck
from dpbench.step.gradients.tangents import detached


class ForwardCall(NamedTuple):
    """A module's forward call: its input and output.

    a: without features, [B K, 0], where the module's rule does not read it.
    """

    a: Tensor
    output: Output


class ForwardCalls:
    """Hooks on tracked modules that record their calls, and announce them to a row check.

    A pass raises Unsupported for calls that book-keeping cannot follow, and RowsMoved where the
    first axis does not hold the rows.
    """

    def __init__(self, tracked: Sequence[TrackedModule], row_check: RowCheck):
        called = [t for t in tracked if not t.bare]
        self._inputs_unread = {t.module for t in called if not t.rule.reads_inputs}
        self._row_check, self._rows = row_check, 0
        self._calls: dict[nn.Module, ForwardCall] | None = None
        for module in (t.module for t in called):
            module.register_forward_pre_hook(self._begin)
            module.register_forward_hook(self._end, prepend=True)  # others may change it

    @contextmanager
    def recorded(self, rows: int) -> Iterator[dict[nn.Module, ForwardCall]]:
        """The context of a pass of so many rows, and the calls in it."""
        calls: dict[nn.Module, ForwardCall] = {}
        self._calls, self._rows = calls, rows
        try:
            yield calls
        finally:
            self._calls = None

    def _begin(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple | None:
        """The same input for each row, where a module is called once for all, as for positions."""
        if self._calls is None:
            return None
        self._row_check.enter(module)
        with torch._C.DisableTorchFunction():  # only what the model's own code calls is followed
            if len(inputs) != 1 or len(inputs[0]) != 1 or self._rows == 1:
                return None
            return (inputs[0].expand(self._rows, *inputs[0].shape[1:]),)

    def _end(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """The output of a call, which is added to the calls."""
        if self._calls is None:
            return None
        with torch._C.DisableTorchFunction():
            self._refuse(module, inputs, output)
            if output.is_leaf or (output._is_view() and product_behind(output) is None):
                output = output.clone()  # an in-place change would otherwise move its graph edge
            if len(inputs[0]) != self._rows or len(output) != self._rows:
                raise RowsMoved("the first axis of a module's input is not that of the examples")
            self._row_check.leave(module, inputs[0], output)
            a = detached(inputs[0])
            if module in self._inputs_unread:
                a = a.new_empty(len(a), 0)  # so that their memory can be freed
            self._calls[module] = ForwardCall(a, Output.of(output))
            return output

    def _refuse(self, module: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        """Raise Unsupported for a call that has no rule."""
        if self._calls and module in self._calls:
            raise Unsupported("a module is used more than once in a forward pass")
        if not inputs:
            raise Unsupported("a module is called with keyword arguments")
        if len(inputs) != 1 or not isinstance(output, Tensor):
            raise Unsupported("a module has other than one input and one output")
        if not output.requires_grad:
            raise Unsupported("a module's output is cut off from its parameters")
