"""Models of torch's own layers in a row, which do the same with a batch of any size; and of such
rows with a connection beside them, as in ResNet-9 and Wide ResNet."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn.modules import module as modules_of_torch

from dpbench.learning.models.resnet9 import Residual
from dpbench.learning.models.standardised import StandardisedConv2d
from dpbench.learning.models.wide_resnet import Block

TYPES = (
    *(nn.Sequential, nn.Identity, nn.Flatten, nn.Dropout, nn.Embedding),
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Tanhshrink),
    *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Hardshrink, nn.Softshrink),
    *(nn.GLU, nn.Softmax, nn.Softmin, nn.LogSoftmax),
)
"""Types whose code reads no value, stores nothing, and chooses nothing by the number of rows."""

BLOCKS = (Residual, Block, StandardisedConv2d)
"""Our own types of which the same holds. A sum of two branches of other shapes might mix rows, but
only in a batch whose size is another axis's length: torch refuses all others, of two rows and more.
"""

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
FOR_ALL = [vars(modules_of_torch)[f"_global{kind}"] for kind in HOOKS]
"""torch's hooks of a module, and of all modules."""

CODE: dict[type[nn.Module], object] = {
    kind: (kind.forward, nn.Module.__call__, nn.Module._call_impl) for kind in (*TYPES, *BLOCKS)
}

SETTINGS = {bool, int, float, str, tuple, list, type(None)}
ATTRIBUTES = SETTINGS | {dict, OrderedDict, set}
"""Types of a layer's attributes: its settings, and torch's containers of parameters and hooks.
Anything else, such as a function, may take the place of code of its class."""

PARAMETERS = {nn.Parameter, type(None)}


def operations_of(model: nn.Module, hooks: int) -> str:
    """What determines the operations of a pass, given the shape of an example; "" if other code
    than that of TYPES and BLOCKS may run.

    hooks: how many the modules have, of which none changes a pass.
    """
    named = [*model.named_modules(remove_duplicate=False)]
    if _watched() or not all(_plain(module) for _, module in named):
        return ""
    present = [*FOR_ALL, *(vars(module)[kind] for _, module in named for kind in HOOKS)]
    return settings_of(model) if sum(map(len, present)) == hooks else ""


def settings_of(model: nn.Module) -> str:
    """The types of all modules, their settings, and how many hooks they have."""
    return repr(
        [
            (name, type(module).__name__, _settings(module), *(len(vars(module)[k]) for k in HOOKS))
            for name, module in model.named_modules(remove_duplicate=False)
        ]
    )


def _plain(module: nn.Module) -> bool:
    """Whether a call of a module without hooks runs code of its type alone, on plain tensors."""
    kind = type(module)
    return (
        CODE.get(kind) == (kind.forward, kind.__call__, kind._call_impl)
        and ATTRIBUTES.issuperset(map(type, vars(module).values()))
        and PARAMETERS.issuperset(map(type, module._parameters.values()))
    )


def _settings(module: nn.Module) -> dict[str, object]:
    return {key: value for key, value in vars(module).items() if type(value) in SETTINGS}


def _watched() -> bool:
    """Whether code that is not the model's sees each operation, or what a gradient needs of it."""
    return bool(
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._autograd._top_saved_tensors_default_hooks(True)
    )
