"""Batch normalisation in private training: with the statistics of public data, or replaced."""

import math
from types import MethodType

from torch import nn

BATCH_NORM = nn.modules.batchnorm._BatchNorm
MOST_GROUPS = 32
"""Of a group normalisation's channels, as by Wu and He (2018)."""


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """The model, in which batch normalisation keeps to its statistics in training too, so that it
    mixes no examples: for networks that were trained on public data."""
    for module in model.modules():
        if isinstance(module, BATCH_NORM):
            module.eval()
            module.train = MethodType(lambda same, mode=True: same, module)  # type: ignore[method-assign]
    return model


def with_group_norm(model: nn.Module) -> nn.Module:
    """The model with GroupNorm in place of batch normalisation, which mixes examples.

    Scales and shifts are kept, and statistics dropped, so pre-trained weights fit less well. What
    `ModuleValidator.fix` of Opacus does.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, BATCH_NORM) and name:
            model.set_submodule(name, _group_norm(module))
    return model


def _group_norm(norm: nn.modules.batchnorm._BatchNorm) -> nn.GroupNorm:
    groups = math.gcd(MOST_GROUPS, norm.num_features)
    new = nn.GroupNorm(groups, norm.num_features, norm.eps, norm.affine)
    if norm.affine:
        new.weight, new.bias = norm.weight, norm.bias
    return new
