"""Modules whose per-example gradients are materialised: normalisation layers and the fallback."""

import copy
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from dpbench.step.gradients.engine import Weights
from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.layers.patches import over_image
from dpbench.step.gradients.norms import Term, of_rows
from dpbench.system.grouping import grouped

NormLayer = (
    nn.modules.batchnorm._BatchNorm
    | nn.GroupNorm
    | nn.LayerNorm
    | nn.RMSNorm
    | nn.InstanceNorm1d
    | nn.InstanceNorm2d
)


LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm)
"""Layers whose scale or bias has the last axes of the output; that of all others has the second."""

SMALL = 2**13
"""Numbers an example up to which a layer's gradients are taken together with others'."""


class Rows(LayerGradient):
    """Materialised gradients: rows [B, d]."""

    def __init__(self, rows: Tensor):
        self.rows = rows

    @property
    def small(self) -> Tensor | None:
        return self.rows if self.rows.shape[1] <= SMALL else None

    def squared_norm(self) -> Term:
        return of_rows(self.rows)

    def write_sum(self, weights: Weights, out: Tensor) -> None:
        torch.mv(weights.zeroed(self.rows).T, weights.factors, out=out)

    def dot(self, vector: Tensor) -> Tensor:
        return self.rows @ vector

    def double(self) -> "Rows":
        return Rows(self.rows.double())

    def stack(self) -> Tensor:
        return self.rows


def normalisation(call: ModuleCall) -> list[Rows]:
    """Group, instance, layer or root-mean-square normalisation, or frozen batch normalisation: b
    times the normalised input for the scale, and b for the shift, summed over positions."""
    rows = [_over_positions(call.module, _normal(call.module, call.a).mul_(call.b))]
    if _biased(call.module):
        rows.append(_over_positions(call.module, call.b))
    return [Rows(call.over_views(torch.cat(rows, 1)))]


def perturbed_normalisation(perturbation: Perturbation, x: Tensor) -> Tensor:
    """The outputs of a normalisation for x, with per-example scale and shift."""
    module, views = perturbation.module, perturbation.views
    over_views = {n: v.repeat_interleave(views, 0) for n, v in perturbation.values().items()}
    out = _normal(module, x)
    out = out * _as_outputs(module, over_views["weight"], out)
    return out + _as_outputs(module, over_views["bias"], out) if _biased(module) else out


def _normal(module: NormLayer, x: Tensor) -> Tensor:
    """The normalised input, before scale and shift."""
    match module:
        case nn.GroupNorm() if forward_ad.unpack_dual(x).tangent is not None:
            # Unlike this, group_norm has a backward pass without a forward-mode derivative.
            groups = F.instance_norm(x.reshape(len(x), module.num_groups, -1), eps=module.eps)
            return groups.view_as(x)
        case nn.GroupNorm():
            return F.group_norm(x, module.num_groups, eps=module.eps)
        case nn.LayerNorm():
            return F.layer_norm(x, module.normalized_shape, eps=module.eps)
        case nn.modules.batchnorm._BatchNorm():
            return F.batch_norm(x, module.running_mean, module.running_var, eps=module.eps)
        case nn.RMSNorm():
            return F.rms_norm(x, module.normalized_shape, eps=module.eps)
    return F.instance_norm(x, eps=module.eps)


def _biased(module: NormLayer) -> bool:
    return getattr(module, "bias", None) is not None


def _over_positions(module: nn.Module, x: Tensor) -> Tensor:
    """x [B K, ...], shaped like outputs, summed over positions [B K, d]."""
    if isinstance(module, LAST):
        *_, parameter = module.parameters()
        return x.reshape(len(x), -1, parameter.numel()).sum(1)
    return over_image(x)


def biases(call: ModuleCall) -> list[Rows]:
    """Only the bias is trained: output gradients summed over positions, whatever the inputs were
    (Bu et al. 2024, "Differentially private bias-term fine-tuning of foundation models")."""
    return [Rows(call.over_views(_over_positions(call.module, call.b)))]


def _as_outputs(module: NormLayer, value: Tensor, out: Tensor) -> Tensor:
    """A value [B K, ...] of each row, shaped so that it broadcasts over the outputs."""
    spare = (1,) * (out.dim() - value.dim())
    if isinstance(module, LAST):
        return value.view(len(value), *spare, *value.shape[1:])
    return value.view(*value.shape, *spare)


def fallback(call: ModuleCall) -> list[Rows]:
    """Any module with one input and one output, by the vectorised vjp of its forward pass.

    There is one entry per layer, a submodule with parameters of its own, in the layers' order.
    """
    named = _trained(call.module, call.values())
    if call.perturbation:
        named = {n: v.repeat_interleave(call.views, 0) for n, v in named.items()}

    def of_row(named: dict[str, Tensor], a: Tensor, b: Tensor) -> dict[str, Tensor]:
        def forward(named: dict[str, Tensor]) -> Tensor:
            return functional_call(call.module, named, (a.unsqueeze(0),)).squeeze(0)

        return vjp(forward, named)[1](b)[0]

    axes = (0 if call.perturbation else None, 0, 0)
    rows = vmap(of_row, axes, randomness="different")(named, call.a, call.b)
    layers = grouped((n.rpartition(".")[0], rows[n].reshape(len(call.b), -1)) for n in named)
    return [Rows(call.over_views(torch.cat(parts, 1))) for parts in layers.values()]


def perturbed_fallback(perturbation: Perturbation, x: Tensor) -> Tensor:
    """Any module's outputs for x, with each example's parameters materialised."""
    named = _trained(perturbation.module, perturbation.values())
    module = copy.copy(perturbation.module)  # the original's forward is patched to call this
    vars(module).pop("forward", None)
    module._forward_hooks = module._forward_pre_hooks = OrderedDict()  # the original's run

    def of_example(named: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(module, named, (x,))

    out = vmap(of_example, randomness="different")(named, x.unflatten(0, (-1, perturbation.views)))
    return out.flatten(0, 1)


def _trained(module: nn.Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: values[n] for n, p in module.named_parameters() if p.requires_grad}
