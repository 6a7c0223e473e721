"""Convolutions, including those whose kernel is computed from the weight."""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from dpbench.step.gradients.engine import Weights, column_blocks, per_block
from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.layers.patches import (
    PatchProducts,
    by_position,
    fast_groups,
    output_sides,
    over_image,
    patches,
    products_of_pixels,
)
from dpbench.step.gradients.norms import Recomputed, Sum, Term, evaluated, of_rows, rounding_of_sum
from dpbench.step.gradients.position_norms import OuterNorms, of_products
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products

convolution_backward = torch.ops.aten.convolution_backward.default

FAST = 64
"""Additional roundings allowed for fast convolution algorithms (Winograd, FFT)."""


class Convolution(LayerGradient):
    """The gradient of a kernel: a [B K, C, *image], zero-padded by `padding`, b [B K, O, *image'].

    It is the weight gradient of a convolution over one image with the examples as groups. On a GPU,
    and for some shapes, products of b with the patches of a are faster; with few positions and
    large kernels the norm comes from `PatchProducts`. Gradients that take more memory than a and b
    are recomputed for the sum, in float32 whatever the products, as fast algorithms round inside.
    """

    def __init__(
        self,
        module: nn.Conv1d | nn.Conv2d,
        a: Tensor,
        b: Tensor,
        views: int,
        padding: tuple[int, ...],
        products: Products = FLOAT32_PRODUCTS,
    ):
        self.module, self.a, self.b, self.views, self.padding = module, a, b, views, padding
        self.products = products
        self._weight: Tensor | None = None

    @property
    def _examples(self) -> int:
        return len(self.b) // self.views

    @property
    def _biased(self) -> bool:
        return self.module.bias is not None

    @property
    def small(self) -> Tensor | None:
        return self.bias_rows if self._biased else None

    def squared_norm(self) -> Term:
        weight, bias = self._weight_norm(), self.bias_norm
        return weight if bias is None else Sum(weight, bias)

    @property
    def bias_norm(self) -> Term | None:
        """The squared norm of the bias's gradient; None without a bias."""
        return of_rows(self.bias_rows) if self._biased else None

    def _weight_norm(self) -> Term:
        if self.by_positions:
            outputs = of_products(*products_of_pixels(self.b, self.views, self.products))
            return OuterNorms(self._products.gram(self.a, self.products), outputs)
        if not self._large:
            return of_rows(self.weight_rows())
        # The rows are freed here: only their chunks' norms are kept.
        rows = of_rows(self._compute_weight_rows())
        return Recomputed(rows, *self._input_norms, self._kernel_size, self._rounding)

    @property
    def _input_norms(self) -> tuple[Term, Term]:
        a, b = (of_rows(x.reshape(self._examples, -1)) for x in (self.a, self.b))
        return a, b

    @property
    def _kernel_size(self) -> float:
        """How often a pixel is in patches, at most; the root."""
        return math.prod(self.module.kernel_size) ** 0.5

    @property
    def _rounding(self) -> float:
        positions = math.prod(self.b.shape[2:]) * self.views
        return rounding_of_sum(self.products.roundings * positions + FAST, self.b)

    def rounding(self) -> Tensor:
        a, b = evaluated(self._input_norms)
        # |patches| |b|: what the gradient's norm is at most, without cancellation.
        return self._rounding * ((a * b).sqrt() * self._kernel_size)

    @property
    def by_positions(self) -> bool:
        """Whether products of positions are cheaper than the gradient itself."""
        o, i = len(self.module.weight), math.prod(self.module.weight.shape[1:])
        t = math.prod(self.b.shape[2:])
        products = self._products.operations(self.a.shape[2:], t) + (self.views * t) ** 2 * o
        # As measured on an AMD EPYC: products are slower, and the sum has to be computed too.
        cheaper = products < 0.7 * self.views * t * i * o
        return self._weight is None and self.module.groups == 1 and cheaper

    @property
    def _products(self) -> PatchProducts:
        return PatchProducts(self.module, self.padding, self.views)

    def apply(self, x: Tensor, scales: Tensor) -> Tensor:
        """scales_i times the convolution of padded x [B K, C, *image] with G_i, plus bias."""
        scales = scales.view(-1, 1, 1)
        out = self._products.products(x, self.a) @ (by_position(self.b, self.views) * scales)
        if self._biased:
            out = out + self.bias_rows.unsqueeze(1) * scales
        # [B, K T, O] to [B K, O, *image]
        return out.unflatten(1, (self.views, -1)).flatten(0, 1).mT.reshape(self.b.shape)

    @property
    def _large(self) -> bool:
        """Whether all gradients take more memory than the a and b they are computed from."""
        inputs = self.a.numel() + self.b.numel()
        return self.module.weight.numel() * self._examples > inputs

    def weight_rows(self) -> Tensor:
        """The kernel's gradient of each example [B, O I], stored from now on."""
        if self._weight is None:
            self._weight = self._compute_weight_rows()
        return self._weight

    def _compute_weight_rows(self) -> Tensor:
        m, examples = self.module, self._examples
        if self._by_products:
            return self._weight_rows_by_products()
        a, b = as_groups(self.a, examples), as_groups(self.b, examples)
        like = b.new_empty(1).expand(examples * len(m.weight), *m.weight.shape[1:])
        rows = self._kernel_gradient(a, b, like, examples * m.groups)
        return rows.reshape(examples, -1)

    def _kernel_gradient(self, a: Tensor, b: Tensor, like: Tensor, groups: int) -> Tensor:
        """The gradient of a kernel, of the shape of `like`, whose numbers are not read."""
        m = self.module
        sizes = m.stride, self.padding, m.dilation, False, [0], groups
        return convolution_backward(b, a, like, None, *sizes, [False, True, False])[1]

    @property
    def _by_products(self) -> bool:
        """Whether products are faster than a convolution with many groups."""
        if not fast_groups(self.b):
            return True
        m, positions = self.module, math.prod(self.b.shape[2:])
        # As measured on an AMD EPYC, for 1 to 256 channels and 16 to 1,024 positions.
        few = positions < m.in_channels or math.prod(m.kernel_size) == 1
        return m.groups == 1 and few

    def _weight_rows_by_products(self) -> Tensor:
        groups = self.module.groups
        i = math.prod(self.module.weight.shape[1:])
        b = _columns(self.b.flatten(2), self.views, groups)
        size = per_block(b.shape[2] * i * groups, b.device)
        dual = any(forward_ad.unpack_dual(x).tangent is not None for x in (self.a, b))
        with self.products.taken(b):
            if dual or self._examples <= size:  # `out` has no derivative
                rows = torch.bmm(b, self._input_columns(self.a).mT)
            else:
                rows = b.new_empty(len(b), b.shape[1], i)
                parts = (self.a, self.views), (b, groups), (rows, groups)
                by_part = zip(*(x.split(size * of_each) for x, of_each in parts), strict=True)
                for a, b, out in by_part:  # the columns of one part alive
                    torch.bmm(b, self._input_columns(a).mT, out=out)
        return rows.view(self._examples, -1)

    def _input_columns(self, a: Tensor) -> Tensor:
        """The patches of inputs [B groups, I, K T]."""
        return _columns(patches(self.module, a, self.padding), self.views, self.module.groups)

    def perturbed_biases(self, bias: Tensor | None, scales: Tensor) -> Tensor | None:
        """[B, O], or None without a bias."""
        if bias is None:
            return None
        return torch.addcmul(bias, self.bias_rows, scales.unsqueeze(1))

    @cached_property
    def bias_rows(self) -> Tensor:
        """Used for both norm and sum, so that cancelling positions round alike."""
        if self.views == 1:
            return over_image(self.b)
        return self.b.unflatten(0, (-1, self.views)).flatten(3).sum((1, 3))

    def write_sum(self, weights: Weights, out: Tensor) -> tuple[Tensor, Tensor] | None:
        if self._weight is not None:
            torch.mv(weights.zeroed(self._weight).T, weights.factors, out=out)
            return None
        a, b = weights.zeroed(self.a), weights.scaled(self.b)
        weight = out.view(self.module.weight.shape)
        return weight, self._kernel_gradient(a, b, weight, self.module.groups)

    def dot(self, vector: Tensor) -> Tensor:
        m = self.module
        kernel = vector[: m.weight.numel()].view_as(m.weight)
        outputs = _convolve(m, self.a, kernel, None, self.padding)
        total = (outputs * self.b).reshape(self._examples, -1).sum(1)
        return total + self.bias_rows @ vector[m.weight.numel() :] if self._biased else total

    def double(self) -> "Convolution":
        a, b = self.a.double(), self.b.double()
        return Convolution(self.module, a, b, self.views, self.padding)

    def stack(self) -> Tensor:
        weight = self.weight_rows()
        return torch.cat([weight, self.bias_rows], 1) if self._biased else weight

    def blocks(self) -> Iterator[Tensor]:
        yield from column_blocks(self.weight_rows())
        if self._biased:
            yield self.bias_rows


def convolution(call: ModuleCall) -> list[Convolution]:
    """A convolution of any stride, padding, dilation and groups; its kernel may be computed from
    the weight."""
    a, padding = _padded(call.module, call.a)
    return [Convolution(call.module, a, call.b, call.views, padding, call.products)]


def perturbed_convolution(perturbation: Perturbation, x: Tensor) -> Tensor:
    """A convolution's outputs for x, with W_i = W + scales_i G_i; G_i is applied position by
    position if they are few and kernels large."""
    module, _, shared, (gradient,), scales = perturbation
    values = shared()
    if gradient.by_positions:
        x, padding = _padded(module, x)
        plain = _convolve(module, x, values["weight"], values.get("bias"), padding)
        return plain + gradient.apply(x, scales)
    weight = values["weight"]
    change, by_example = gradient.weight_rows().view(-1, *weight.shape), [1] * weight.dim()
    kernels = torch.addcmul(weight, change, scales.view(-1, *by_example))
    biases = gradient.perturbed_biases(values.get("bias"), scales)
    return convolve_per_example(module, x, kernels, biases)


def convolve_per_example(
    module: nn.Conv1d | nn.Conv2d, x: Tensor, kernels: Tensor, biases: Tensor | None
) -> Tensor:
    """The convolution of x [B K, ...] with each example's kernel [B, O, I, ...] and bias [B, O],
    one with the examples as its groups, or on a GPU products with the patches."""
    x, padding = _padded(module, x)
    examples, views = len(kernels), len(x) // len(kernels)
    if not fast_groups(x):
        columns = _columns(patches(module, x, padding), views, module.groups)
        by_group = kernels.reshape(len(columns), -1, columns.shape[1])
        products = torch.bmm(by_group, columns).unflatten(0, (examples, -1)).flatten(1, 2)
        if biases is not None:
            products = products + biases.unsqueeze(2)
        by_view = products.unflatten(2, (views, -1)).transpose(1, 2).flatten(0, 1)
        return by_view.unflatten(2, output_sides(module, x.shape[2:], padding))
    bias = None if biases is None else biases.flatten()
    out = _convolve(module, as_groups(x, examples), kernels.flatten(0, 1), bias, padding, examples)
    return out.unflatten(1, (examples, -1)).transpose(0, 1).flatten(0, 1)  # [B K, O, *image]


def _convolve(
    module: nn.Conv1d | nn.Conv2d,
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    padding: tuple[int, ...],
    examples: int = 1,
) -> Tensor:
    """The module's convolution with another kernel and bias; examples: beside each other in x."""
    forward, groups = F.conv1d if x.dim() == 3 else F.conv2d, examples * module.groups
    return forward(x, kernel, bias, module.stride, padding, module.dilation, groups)


def _columns(x: Tensor, views: int, groups: int) -> Tensor:
    """[B groups, c / groups, K T] from [B K, c, T]."""
    if views > 1:
        x = x.unflatten(0, (-1, views)).transpose(1, 2).flatten(2)
    return x if groups == 1 else x.reshape(len(x) * groups, x.shape[1] // groups, -1)


def as_groups(x: Tensor, examples: int) -> Tensor:
    """[K, B C, *image] from [B K, C, *image]."""
    views = x.unflatten(0, (examples, -1)).transpose(0, 1)
    return views.reshape(len(x) // examples, -1, *x.shape[2:])


def _padded(module: nn.Conv1d | nn.Conv2d, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """x, already padded unless its padding is symmetric and zero, and the padding that is left."""
    if module.padding_mode == "zeros" and not isinstance(module.padding, str):
        return x, module.padding
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    # torch stores the padding of each side, last dimension first, as F.pad takes it.
    padded = F.pad(x, module._reversed_padding_repeated_twice, mode=mode)
    return padded, (0,) * (x.dim() - 2)
