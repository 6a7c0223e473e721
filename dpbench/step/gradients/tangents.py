"""Directional derivatives of per-example gradients, by forward-mode differentiation of a pass."""

import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dpbench.step.gradients.layers import LayerGradient
from dpbench.step.gradients.layers.lookup import Lookup
from dpbench.step.gradients.layers.materialised import Rows
from dpbench.step.gradients.layers.outer import Dyad, Outer


def dual(value: Tensor, tangent: Tensor) -> Tensor:
    """A tensor with a tangent, within `forward_ad.dual_level()`."""
    with warnings.catch_warnings():
        # torch warns about scripts of its own when it makes the first tangent.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
        return forward_ad.make_dual(value, tangent)


def detached(x: Tensor) -> Tensor:
    """A tensor without its graph, but with its tangent if it has one."""
    value, tangent = forward_ad.unpack_dual(x)
    if tangent is None:
        return value.detach() if value.requires_grad else value
    return forward_ad.make_dual(value.detach(), tangent.detach())


def plus_tangent(gradient: LayerGradient) -> LayerGradient:
    """g_i + g'_i of one layer, where g'_i is the tangent of g_i.

    A sum of outer products stays one: b a^T + b' a^T + b a'^T. All other gradients except those of
    look-ups are materialised.
    """
    match gradient:
        case Dyad(a=a, b=b, bias=bias):
            return _outer(a.unsqueeze(1), b.unsqueeze(1), b if bias else None)
        case Outer(a=a, b=b, bias=bias):
            return _outer(a, b, bias)
        case Lookup(indices=indices, b=b, rows=rows):
            return Lookup(indices, _sum(b), rows)
    return Rows(_sum(gradient.stack()))


def _outer(a: Tensor, b: Tensor, bias: Tensor | None) -> Outer:
    value, tangent = forward_ad.unpack_dual(a)
    bias = None if bias is None else _sum(bias)
    if tangent is None:
        return Outer(value, _sum(b), bias)
    positions = torch.cat([_sum(b), forward_ad.unpack_dual(b).primal], 1)
    return Outer(torch.cat([value, tangent], 1), positions, bias)


def _sum(x: Tensor) -> Tensor:
    value, tangent = forward_ad.unpack_dual(x)
    return value if tangent is None else value + tangent
