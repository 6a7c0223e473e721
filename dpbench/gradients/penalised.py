"""Per-example gradients of a loss with a penalty on its gradient norm."""

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Engine, Stacked, empty
from dpbench.gradients.vmap import Vmap

Named = dict[str, Tensor]


def penalised(engine: Engine, batch: Batch, weight: float) -> Stacked:
    """g_i + weight H_i g_i/|g_i|, the gradient of L_i + weight |g_i|, with the losses L_i.

    g_i/|g_i| counts as zero where g_i is zero. Differentiated twice by torch.func for any engine;
    all gradients are materialised.
    """
    parameters = engine.parameters
    if not len(batch):
        return empty(parameters)
    plain = Vmap(engine.model, engine.loss, parameters, engine.views)

    def penalised_loss(named: Named, *unit: Tensor) -> tuple[Tensor, Tensor]:
        gradient, value = grad_and_value(plain.unit_loss)(named, *unit)
        return value + weight * _norm(gradient), value

    per_example = vmap(grad(penalised_loss, has_aux=True), (None, 0, 0, 0), randomness="different")
    with torch.no_grad():
        named = parameters.unflatten(parameters.theta.detach())
        rows, losses = per_example(named, *plain.rows(batch))
    return Stacked(losses, parameters.flatten(rows, batched=True), parameters.layers)


def _norm(gradient: Named) -> Tensor:
    """|g|, with a derivative of zero where g is zero."""
    squared = torch.stack([part.square().sum() for part in gradient.values()]).sum()
    return squared.where(squared > 0, 1).sqrt() * (squared > 0)
