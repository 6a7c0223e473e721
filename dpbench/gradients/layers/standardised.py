"""Convolutions whose kernel is the standardised weight."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dpbench.gradients.layers.convolution import Convolution, convolve_per_example, kernel_gradient
from dpbench.gradients.layers.layer import LayerGradient, ModuleCall, perturbed_values
from dpbench.gradients.layers.rows import Rows
from dpbench.gradients.norms import roundoff, squared_norms
from dpbench.models.standardised import standardised_kernel


class Standardisation:
    """The derivative of kernel = gain u, u = (w - mean w)/s, per output channel; w [..., O, I].

    A kernel gradient g gives the gain <g, u>, and the weight P g = gain/s (g - mean g - u <u, g>),
    where P is symmetric. A spread s clamped to its floor is constant: u <u, g> is left out.
    """

    def __init__(self, weight: Tensor, gain: Tensor, floor: float):
        variance, mean = torch.var_mean(weight, -1, correction=0, keepdim=True)
        spread = variance * weight.shape[-1]
        rate = spread.clamp(min=floor).rsqrt()
        self.unit = (weight - mean) * rate  # [O, I]
        self.varying = self.unit * (spread > floor)
        self.rate = gain.unsqueeze(-1) * rate  # [O, 1]

    def weight(self, g: Tensor) -> Tensor:
        """P g for g [..., O, I]."""
        along = (g * self.varying).sum(-1, keepdim=True)
        return self.rate * (g - g.mean(-1, keepdim=True) - self.unit * along)

    def gain(self, g: Tensor) -> Tensor:
        """<g, u> [..., O]."""
        return torch.einsum("...oi,...oi->...o", g, self.unit.to(g))

    def squared_norms(self, g: Tensor) -> Tensor:
        """Upper bounds [B] for weight and gain together, for g [B, O, I], in few passes over g.

        |P g|^2 = (gain/s)^2 (|g|^2 - I (mean g)^2 - <u, g>^2), where the three may cancel.
        """
        size = g.shape[-1]
        norm = squared_norms(g.flatten(0, 1)).sqrt().view(g.shape[:-1])
        rounding = (size + 8) * roundoff(g) * norm  # at most, in each of the sums over I
        along = torch.einsum("boi,oi->bo", g, self.varying).double().abs()
        mean = g.sum(-1).double().abs() / size**0.5
        rest = norm.square() - sum((x - rounding).clamp(min=0).square() for x in (along, mean))
        weight = self.rate.squeeze(1).double().square() * rest.clamp(min=0)
        return (weight + (self.gain(g).abs() + rounding).square()).sum(1)


class Standardised(LayerGradient):
    """The gradient of weight, bias and gain, derived from that of the kernel."""

    def __init__(self, kernel: Convolution, derivative: Standardisation):
        self._kernel, self._derivative = kernel, derivative
        self._shape = derivative.unit.shape[-2:]
        self._size = math.prod(self._shape)

    def squared_norms(self) -> Tensor:
        rows = self._kernel.weight_rows().unflatten(1, self._shape)
        return self._derivative.squared_norms(rows) + self._kernel.bias_squared_norms()

    def write_sum(self, factors: Tensor, out: Tensor) -> None:
        kernel = out.new_empty(len(out) - self._shape[0])  # kernel and bias, without the gain
        self._kernel.write_sum(factors, kernel)
        # In float64, as P may cancel nearly all of it.
        out.copy_(self._joined(kernel.double()))

    def stack(self) -> Tensor:
        return self._joined(self._kernel.stack())

    def _joined(self, rows: Tensor) -> Tensor:
        """[..., d] from the gradient of kernel and bias."""
        g = rows[..., : self._size].unflatten(-1, self._shape)
        weight, gain = self._derivative.weight(g).flatten(-2), self._derivative.gain(g)
        return torch.cat([weight, rows[..., self._size :], gain], -1)

    def dot(self, vector: Tensor) -> Tensor:
        o = self._shape[0]
        weight = vector[: self._size].view(self._shape)
        kernel = self._derivative.weight(weight) + vector[-o:].view(-1, 1) * self._derivative.unit
        return self._kernel.dot(torch.cat([kernel.flatten(), vector[self._size : -o]]))

    def excluding(self, factors: Tensor) -> "Standardised":
        return Standardised(self._kernel.excluding(factors), self._derivative)


def standardised(call: ModuleCall) -> list[LayerGradient]:
    """A convolution with a standardised weight."""
    values = call.values()
    derivative = Standardisation(values["weight"].flatten(-3), values["gain"], call.module.floor)
    gradient = Standardised(kernel_gradient(call), derivative)
    # With per-example weights the derivatives differ, so they are applied before the sum.
    return [Rows(gradient.stack()) if call.per_example else gradient]


def perturbed_standardised(
    call: ModuleCall, gradients: Sequence[LayerGradient], scales: Tensor, x: Tensor
) -> Tensor:
    """A standardised convolution's outputs for x, with per-example weight and gain."""
    values = perturbed_values(call, gradients, scales)
    kernels = standardised_kernel(values["weight"], values["gain"], call.module.floor)
    return convolve_per_example(call.module, x, kernels, values.get("bias"))
