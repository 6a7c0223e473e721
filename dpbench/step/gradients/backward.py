"""The backward pass of a model's losses, which stops at the outputs of its modules."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

Key = TypeVar("Key")
Receiver = Callable[[Tensor], None]
"""Takes the adjoint of an output, which has its shape."""


class Output(NamedTuple):
    """Where an output of a module is in the graph of the losses. The output itself is not stored,
    so that its memory can be freed and it may change in place."""

    edge: GradientEdge
    shape: torch.Size

    @classmethod
    def of(cls, x: Tensor) -> "Output":
        """That of a tensor with a graph."""
        product = product_behind(x)
        return cls(get_gradient_edge(x if product is None else product), x.shape)

    def adjoint(self, gradient: Tensor) -> Tensor:
        """The output's adjoint, from its gradient or that of the product behind it."""
        return gradient if gradient.shape == self.shape else gradient.reshape(self.shape)


def adjoints(
    total: Tensor, outputs: Mapping[Key, Output], receivers: Mapping[Key, Receiver]
) -> dict[Key, Tensor | None]:
    """The adjoints of outputs: the gradients of a total; None for those that it does not depend on.

    receivers: of some outputs. Each gets its adjoint, which is not returned then, in the middle of
    the pass, which frees it afterwards; or at the end, where the pass ends at that output.
    """
    found: dict[Key, Tensor | None] = dict.fromkeys(outputs)

    def find(key: Key, gradient: Tensor | None) -> None:
        if gradient is not None and key in receivers:
            receivers[key](outputs[key].adjoint(gradient))
            del found[key]
        elif gradient is not None:
            found[key] = outputs[key].adjoint(gradient)

    def find_later(key: Key) -> RemovableHandle:
        node, position = outputs[key].edge.node, outputs[key].edge.output_nr
        return node.register_prehook(lambda gradients: find(key, gradients[position]))

    passed = _passed(outputs.values()) if receivers else set()
    between = {key for key in receivers if outputs[key].edge.node in passed}
    ends = {key: output.edge for key, output in outputs.items() if key not in between}
    hooks = [find_later(key) for key in between]
    try:
        # Not by grad_outputs, whose check of shapes imports sympy.
        gradients = torch.autograd.grad(total, [*ends.values()], allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()  # the graph would else refer to itself
    for key, gradient in zip(ends, gradients, strict=True):
        find(key, gradient)
    return found


def _passed(outputs: Iterable[Output]) -> set[Node]:
    """The nodes of outputs through which a pass to all outputs goes."""
    stops = {output.edge.node for output in outputs}
    ending: set[Node] = set()
    return {node for node in stops if _goes_on(node, stops, ending)}


def _goes_on(node: Node, stops: set[Node], ending: set[Node]) -> bool:
    """Whether one of the stops is behind a node. ending: nodes behind which there is none; those
    that are found are added."""
    ahead, seen = [node], {node}
    while ahead:
        for behind, _ in ahead.pop().next_functions:
            if behind in stops:
                return True
            if behind is not None and behind not in seen and behind not in ending:
                seen.add(behind)
                ahead.append(behind)
    ending |= seen
    return False


def product_behind(output: Tensor) -> Tensor | None:
    """The matrix product of which the output of a linear layer with several positions is another
    shape: gradients pass through it even if the output changes in place. None for other outputs."""
    product = output._base
    if product is None or not output.is_cuda:  # a processor's sums keep the order of a copy
        return None
    computed = type(product.grad_fn).__name__ in ("AddmmBackward0", "MmBackward0")
    shape = (math.prod(output.shape[:-1]), output.shape[-1])
    same = product.shape == shape and output.is_contiguous() and product.is_contiguous()
    return product if computed and same else None
