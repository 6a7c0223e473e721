"""Per-example gradients of a loss with a penalty on its gradient norm."""

from contextlib import suppress

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, grad_and_value, vmap

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.engine import (
    Engine,
    Gradients,
    MaterialisedGradients,
    PerExampleShift,
    empty,
    joined,
)
from dpbench.step.gradients.factored import FactoredGradients
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.tangents import dual, plus_tangent
from dpbench.step.gradients.vmap import Vmap
from dpbench.system.seeds import torch_state_kept

Named = dict[str, Tensor]


def penalised(engine: Engine, batch: Batch, weight: float) -> Gradients:
    """g_i + weight H_i g_i/|g_i|, the gradient of L_i + weight |g_i|, with the losses L_i.

    A g_i that is zero or not finite has no penalty. By book-keeping if the engine can, otherwise by
    second derivatives of torch.func.
    """
    if not len(batch):
        return empty(engine.parameters)
    if isinstance(engine, Ghost):
        # The backward pass of some operations has no forward-mode derivative.
        with suppress(NotImplementedError):
            return _by_book_keeping(engine, batch, weight)
    if isinstance(engine, Loop) and len(batch) > 1:
        return _one_by_one(engine, batch, weight)
    return _materialised(engine, batch, weight)


def _one_by_one(engine: Engine, batch: Batch, weight: float) -> MaterialisedGradients:
    parts = [penalised(engine, part, weight) for part in batch.split(1)]
    return joined(parts, engine.parameters.layers)


def _by_book_keeping(engine: Ghost, batch: Batch, weight: float) -> Gradients:
    """Gradients plus tangents at theta + t g_i, where t is 0 with the tangent weight/|g_i|."""
    with torch_state_kept(engine.parameters.theta.device):  # the same dropout
        plain = engine(batch)
    if not isinstance(plain, FactoredGradients):  # of units that were computed one by one
        return _one_by_one(engine, batch, weight)
    with forward_ad.dual_level():
        rates = per_length(plain.norms, weight)
        scales = dual(torch.zeros_like(rates), rates)
        shifted = engine(batch, PerExampleShift(plain, scales))
        assert isinstance(shifted, FactoredGradients)
        by_module = {
            tracked: part._replace(gradients=[plus_tangent(g) for g in part.gradients], values=None)
            for tracked, part in shifted.by_module.items()
        }
    return FactoredGradients(plain.losses, by_module, engine.parameters)


def per_length(norms: Tensor, length: float) -> Tensor:
    """length/norm, and 0 where the norm is 0 or not finite."""
    return (length / norms).where((norms > 0) & norms.isfinite(), 0)


def _materialised(engine: Engine, batch: Batch, weight: float) -> MaterialisedGradients:
    parameters = engine.parameters
    plain = Vmap(engine.model, engine.loss, parameters, engine.views)
    plain.options = engine.options

    def penalised_loss(named: Named, *unit: Tensor) -> tuple[Tensor, Tensor]:
        gradient, value = grad_and_value(plain.unit_loss)(named, *unit)
        return value + weight * _norm(gradient), value

    per_example = vmap(grad(penalised_loss, has_aux=True), (None, 0, 0, 0), randomness="different")
    return plain.vectorised(per_example, parameters.theta.detach(), batch)


def _norm(gradient: Named) -> Tensor:
    """|g|, with a derivative of zero where g is zero."""
    squared = torch.stack([part.square().sum() for part in gradient.values()]).sum()
    return squared.where(squared > 0, 1).sqrt() * (squared > 0)
