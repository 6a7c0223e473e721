"""Modules whose per-example gradients are materialised: the small and the strange."""

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from dpbench.gradients.engine import without
from dpbench.gradients.layers.layer import LayerGradient, Seen


class Rows:
    """Gradients that are small enough, or strange enough, to be materialised: rows [B, d]."""

    def __init__(self, rows: Tensor):
        self.rows = rows

    def squared_norms(self) -> Tensor:
        return self.rows.square().sum(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return factors @ self.rows

    def dot(self, vector: Tensor) -> Tensor:
        return self.rows @ vector

    def stack(self) -> Tensor:
        return self.rows

    def cleaned(self, factors: Tensor) -> "Rows":
        return Rows(without(self.rows, factors))


def group_norm(seen: Seen) -> LayerGradient:
    """The scale's gradient is b times the normalised input, summed over positions."""
    return _channels(seen, F.group_norm(seen.a, seen.module.num_groups, eps=seen.module.eps))


def instance_norm(seen: Seen) -> LayerGradient:
    """As for group normalisation, with each channel its own group."""
    return _channels(seen, F.instance_norm(seen.a, eps=seen.module.eps))


def layer_norm(seen: Seen) -> LayerGradient:
    """As for group normalisation, over the axes before the normalised ones."""
    module = seen.module
    return _trailing(seen, F.layer_norm(seen.a, module.normalized_shape, eps=module.eps))


def rms_norm(seen: Seen) -> LayerGradient:
    """As for layer normalisation, without mean and shift."""
    module = seen.module
    return _trailing(seen, F.rms_norm(seen.a, module.normalized_shape, eps=module.eps))


def _channels(seen: Seen, normal: Tensor) -> Rows:
    shape = (len(seen.b), seen.b.shape[1], -1)
    return _affine(seen, (seen.b * normal).reshape(shape).sum(2), seen.b.reshape(shape).sum(2))


def _trailing(seen: Seen, normal: Tensor) -> Rows:
    shape = (len(seen.b), -1, seen.module.weight.numel())
    return _affine(seen, (seen.b * normal).reshape(shape).sum(1), seen.b.reshape(shape).sum(1))


def _affine(seen: Seen, scale: Tensor, shift: Tensor) -> Rows:
    biased = getattr(seen.module, "bias", None) is not None
    return Rows(seen.over_views(torch.cat([scale, shift], 1) if biased else scale))


def anything(seen: Seen) -> list[LayerGradient]:
    """Any module with one input and one output, by the vectorised adjoint of its own forward.

    One entry per layer (module with parameters of its own) below it, in their order.
    """
    trainable = {n for n, p in seen.module.named_parameters() if p.requires_grad}
    named = {n: v for n, v in seen.values().items() if n in trainable}

    def one(a: Tensor, b: Tensor) -> dict[str, Tensor]:
        def forward(named: dict[str, Tensor]) -> Tensor:
            return functional_call(seen.module, named, (a.unsqueeze(0),)).squeeze(0)

        return vjp(forward, named)[1](b)[0]

    rows = vmap(one, randomness="different")(seen.a, seen.b)
    layers: dict[str, list[Tensor]] = {}
    for name in named:
        layers.setdefault(name.rpartition(".")[0], []).append(rows[name].flatten(1))
    return [Rows(seen.over_views(torch.cat(parts, 1))) for parts in layers.values()]
