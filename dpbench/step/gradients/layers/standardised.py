"""Convolutions whose kernel is the standardised weight."""

import math

import torch
from torch import Tensor

from dpbench.step.gradients.engine import Weights
from dpbench.step.gradients.layers.convolution import Convolution, convolution, convolve_per_example
from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.layers.materialised import Rows
from dpbench.step.gradients.norms import Known, Sum, Term, roundoff, squared_norms


class Standardisation:
    """kernel = gain u, u = c/s, c = w - mean w, s = |c| per output channel; with its derivative.

    Of one weight w [O, I], or of one for each example [B, O, I]. A kernel gradient g gives the
    gain <g, u>, and the weight P g = gain/s (g - mean g - u <u, g>), where P is symmetric. An s^2
    clamped to its floor is constant: u <u, g> is left out.
    """

    def __init__(self, centred: Tensor, gain: Tensor, floor: float):
        """centred: c, which becomes u in place."""
        squared = torch.linalg.vector_norm(centred, dim=-1, keepdim=True).square()
        self._floor, self._varying = floor, squared > floor  # [..., O, 1]
        self._length = squared.clamp(min=floor).sqrt()
        self.unit = centred.div_(self._length)
        self._gain = gain.unsqueeze(-1)
        self.rate = self._gain / self._length

    @classmethod
    def of(cls, weight: Tensor, gain: Tensor, floor: float) -> "Standardisation":
        """That of a weight [O, I] and a gain [O]."""
        centred = weight - weight.mean(-1, keepdim=True)
        # Twice, as rounding of a mean that is large beside the spread leaves a mean: norms need u
        # without one.
        return cls(centred - centred.mean(-1, keepdim=True), gain, floor)

    @property
    def kernel(self) -> Tensor:
        return self._gain * self.unit

    def perturbed(self, g: Tensor, scales: Tensor) -> "Standardisation":
        """That of w + scales_i P g_i and gain + scales_i <g_i, u>, for g [B, O, I], scales [B]."""
        along, scales = self._along(g), scales.view(-1, 1, 1)
        step = scales * self.rate
        # c + step (g - mean g - u <u, g>), where c = s u: two passes over [B, O, I].
        shrunk = self._length - step * along * self._varying
        centred = torch.addcmul(-step * g.mean(-1, keepdim=True), shrunk, self.unit)
        gain = self._gain + scales * along
        return Standardisation(centred.addcmul_(step, g), gain.squeeze(-1), self._floor)

    def weight(self, g: Tensor) -> Tensor:
        """P g for g [..., O, I]."""
        rate, along = self.rate.to(g), self._along(g) * self._varying
        rest = torch.addcmul(-rate * g.mean(-1, keepdim=True), -rate * along, self.unit.to(g))
        return rest.addcmul_(rate, g)

    def gain(self, g: Tensor) -> Tensor:
        """<g, u> [..., O]."""
        return self._along(g).squeeze(-1)

    def _along(self, g: Tensor) -> Tensor:
        """<g, u> [..., O, 1]."""
        if g.dim() > self.unit.dim():
            return torch.einsum("boi,oi->bo", g, self.unit).unsqueeze(-1)
        return (g * self.unit).sum(-1, keepdim=True)

    def squared_norms(self, g: Tensor) -> Tensor:
        """Upper bounds [B] for weight and gain together, for g [B, O, I], in few passes over g.

        |P g|^2 = (gain/s)^2 (|g|^2 - I (mean g)^2 - <u, g>^2), where the three may cancel.
        """
        size = g.shape[-1]
        norm = squared_norms(g.flatten(0, 1)).sqrt().view(g.shape[:-1])
        rounding = (size + 8) * roundoff(g) * norm  # at most, in each of the sums over I
        gain = self.gain(g).double().abs()
        along = gain * self._varying.squeeze(-1)
        mean = g.sum(-1).double().abs() / size**0.5
        rest = norm.square() - sum((x - rounding).clamp(min=0).square() for x in (along, mean))
        weight = self.rate.squeeze(-1).double().square() * rest.clamp(min=0)
        return (weight + (gain + rounding).square()).sum(1)


class Standardised(LayerGradient):
    """The gradient of weight, bias and gain, derived from that of the kernel."""

    def __init__(self, kernel: Convolution, derivative: Standardisation):
        self.kernel, self._derivative = kernel, derivative
        self._shape = derivative.unit.shape[-2:]
        self._size = math.prod(self._shape)

    def squared_norm(self) -> Term:
        weight = Known(self._derivative.squared_norms(self._kernels()))
        bias = self.kernel.bias_norm
        return weight if bias is None else Sum(weight, bias)

    def _kernels(self) -> Tensor:
        """The gradients of the kernel [B, O, I], stored from now on."""
        return self.kernel.weight_rows().unflatten(1, self._shape)

    def perturbed(self, scales: Tensor) -> Standardisation:
        """The standardisation of weight and gain plus scales_i g_i."""
        return self._derivative.perturbed(self._kernels(), scales)

    def write_sum(self, weights: Weights, out: Tensor) -> None:
        kernel = out.new_empty(len(out) - self._shape[0])  # kernel and bias, without the gain
        if late := self.kernel.write_sum(weights, kernel[: self._size]):
            late[0].copy_(late[1])
        if (bias := self.kernel.small) is not None:
            torch.mv(weights.zeroed(bias).T, weights.factors, out=kernel[self._size :])
        # In float64, as P may cancel nearly all of it.
        out.copy_(self._joined(kernel.double()))

    def rounding(self) -> Tensor:
        return self.kernel.rounding() * (1 + float(self._derivative.rate.abs().max()))

    def double(self) -> "Standardised":
        return Standardised(self.kernel.double(), self._derivative)

    def stack(self) -> Tensor:
        return self._joined(self.kernel.stack())

    def _joined(self, rows: Tensor) -> Tensor:
        """[..., d] from the gradient of kernel and bias."""
        g = rows[..., : self._size].unflatten(-1, self._shape)
        weight, gain = self._derivative.weight(g).flatten(-2), self._derivative.gain(g)
        return torch.cat([weight, rows[..., self._size :], gain], -1)

    def dot(self, vector: Tensor) -> Tensor:
        o = self._shape[0]
        weight = vector[: self._size].view(self._shape)
        kernel = self._derivative.weight(weight) + vector[-o:].view(-1, 1) * self._derivative.unit
        return self.kernel.dot(torch.cat([kernel.flatten(), vector[self._size : -o]]))


def standardised(call: ModuleCall) -> list[LayerGradient]:
    """A convolution with a standardised weight."""
    (kernel,) = convolution(call)
    if call.perturbation:
        # The derivatives differ between examples, so they are applied before the sum.
        return [Rows(Standardised(kernel, _perturbed(call.perturbation)).stack())]
    values = call.values()
    weight = values["weight"].flatten(-3)
    return [Standardised(kernel, Standardisation.of(weight, values["gain"], call.module.floor))]


def perturbed_standardised(perturbation: Perturbation, x: Tensor) -> Tensor:
    """A standardised convolution's outputs for x, with per-example weight and gain."""
    module, _, shared, (gradient,), scales = perturbation
    kernels = _perturbed(perturbation).kernel.view(-1, *module.weight.shape)
    biases = gradient.kernel.perturbed_biases(shared().get("bias"), scales)
    return convolve_per_example(module, x, kernels, biases)


def _perturbed(perturbation: Perturbation) -> Standardisation:
    (gradient,) = perturbation.gradients
    return gradient.perturbed(perturbation.scales)
