"""Steps of torch's optimisers without their wrappers for the compiler and the profiler."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer


def eager_step(optimizer: Optimizer) -> None:
    """Does what `optimizer.step()` does, without the wrappers of torch's own optimisers.

    The wrappers of `Optimizer.step` take longer than the update of a small model, and import
    torch._dynamo, which takes as long as importing torch. They are left out unless they do
    something: call hooks, or keep the step differentiable.
    """
    kind: Any = type(optimizer)
    step = _unwrapped(kind)
    if step is None or _is_watched(optimizer):
        optimizer.step()
    elif descends(optimizer):
        _descend(optimizer)
    else:
        with torch.no_grad():
            step(optimizer)


def descends(optimizer: Optimizer) -> bool:
    """Whether a step is one addition for each parameter, and nothing else."""
    plain = type(optimizer) is SGD and all(map(_is_plain, optimizer.param_groups))
    return plain and not _is_watched(optimizer)


def _is_watched(optimizer: Optimizer) -> bool:
    """Whether the wrappers of a step do something."""
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(hooks or optimizer.defaults.get("differentiable"))


def _is_plain(group: dict) -> bool:
    """Whether a step of SGD is one addition for each parameter."""
    changed = group["momentum"] or group["weight_decay"] or group["maximize"] or group["fused"]
    return not changed and not isinstance(group["lr"], Tensor)


def _descend(optimizer: Optimizer) -> None:
    """A step of gradient descent, without the choices that torch makes before it: they take ten
    times as long as the addition for a small model."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.detach().add_(parameter.grad, alpha=-group["lr"])


@functools.cache
def _unwrapped(kind: type[Optimizer]) -> Callable[[Optimizer], object] | None:
    """The `step` of one of torch's optimisers without its wrappers; None for any other class."""
    return inspect.unwrap(kind.step) if kind.__module__.startswith("torch.optim.") else None


def leave_out_compiler() -> None:
    """Keep torch's optimisers from importing torch._dynamo when they are created.

    Methods that torch.compile must not trace import it on their first call, to mark themselves.
    Nothing here is compiled, so they are called directly, unless it is imported already.
    """
    if "torch._dynamo" in sys.modules:
        return
    for method in filter(inspect.isfunction, vars(Optimizer).values()):
        function = getattr(method, "__wrapped__", None)
        if function is not None and method.__globals__["__name__"] == "torch._compile":
            function.__dynamo_disable = function
