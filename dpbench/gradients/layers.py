"""How each kind of module turns what it saw into per-example gradient norms and sums.

A module that computed outputs from inputs `a`, and whose outputs received the gradient `b`, has
per-example parameter gradients that depend on a and b alone. Each rule below knows how to get
norms, sums and inner products from them, and materialises the gradients only where that is cheaper.
Index letters: b example, t position (sequence or pixel), i input, o output.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from dpbench.gradients.engine import without


class LayerGradient(Protocol):
    """The per-example gradients of one module's parameters, d numbers each."""

    def squared_norms(self) -> Tensor:
        """[B]"""
        ...

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """[d] for factors [B]"""
        ...

    def dot(self, vector: Tensor) -> Tensor:
        """[B] for a vector [d]"""
        ...

    def stack(self) -> Tensor:
        """[B, d]"""
        ...

    def cleaned(self, factors: Tensor) -> "LayerGradient":
        """The same, with the examples of factor 0 taken out."""
        ...


def gram_squared_norms(a: Tensor, b: Tensor) -> Tensor:
    """|sum_t b_t a_t^T|^2 [B] = sum_ts <a_t, a_s> <b_t, b_s>, rounded up; a [B, T, I], b [B, T, O]."""
    total = (a @ a.mT).mul_(b @ b.mT).sum((1, 2))
    lengths = (torch.linalg.vector_norm(x, dim=2) for x in (a, b))
    largest = torch.einsum("bt,bt->b", *lengths).square()
    return rounded_up(total, largest, (a.shape[1], a.shape[2] + b.shape[2]))


def rounded_up(total: Tensor, largest: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sum of terms that may cancel, plus what rounding can have taken from it; [B].

    largest: what the terms add up to without their signs; shape: of the sums, T positions and
    vectors of length n. A norm that came out too small would clip too little, so the error bound
    2 sqrt(T^2 + n) eps (Higham and Mary 2019, probabilistic rounding errors) is added.
    """
    positions, length = shape
    slack = 2 * (positions**2 + length) ** 0.5 * torch.finfo(total.dtype).eps
    return total.clamp(min=0) + slack * largest


class Outer:
    """g_i = sum_t b_it a_it^T, the gradient of every linear map: a [B, T, I], b [B, T, O].

    With one position the norm is a product of two norms (Goodfellow 2015); with several it comes
    from the Gram matrices of a and b over positions, or from the materialised gradient, whichever
    moves less (Bu et al. 2022, "Scalable and efficient training of large convolutional neural
    networks with differential privacy").
    """

    def __init__(self, a: Tensor, b: Tensor, bias: bool):
        self.a, self.b, self.bias = a, b, bias
        self._weight: Tensor | None = None

    def squared_norms(self) -> Tensor:
        total = self._weight_squared_norms()
        return total + self._bias_rows().square().sum(1) if self.bias else total

    def _weight_squared_norms(self) -> Tensor:
        _, t, i = self.a.shape
        o = self.b.shape[2]
        if t == 1:
            return self.a.square().sum((1, 2)) * self.b.square().sum((1, 2))
        if self._weight is None and t * (i + o) < i * o:
            return gram_squared_norms(self.a, self.b)
        return self._weight_rows().square().sum((1, 2))

    def _weight_rows(self) -> Tensor:
        if self._weight is None:
            self._weight = self.b.mT @ self.a  # [B, O, I]
        return self._weight

    def _bias_rows(self) -> Tensor:
        return self.b.squeeze(1) if self.b.shape[1] == 1 else self.b.sum(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if self._weight is not None:
            weight = factors @ self._weight.flatten(1)
        else:
            scaled = (self.b * factors.view(-1, 1, 1)).flatten(0, 1)
            weight = (scaled.mT @ self.a.flatten(0, 1)).flatten()
        # The rows that the norm was taken of: positions that cancel must not do so otherwise here.
        return torch.cat([weight, factors @ self._bias_rows()]) if self.bias else weight

    def dot(self, vector: Tensor) -> Tensor:
        o, i = self.b.shape[2], self.a.shape[2]
        total = ((self.a @ vector[: o * i].view(o, i).T) * self.b).sum((1, 2))
        return total + self._bias_rows() @ vector[o * i :] if self.bias else total

    def stack(self) -> Tensor:
        weight = self._weight_rows().flatten(1)
        return torch.cat([weight, self._bias_rows()], 1) if self.bias else weight

    def cleaned(self, factors: Tensor) -> "Outer":
        return Outer(without(self.a, factors), without(self.b, factors), self.bias)


class Convolution:
    """The gradient of a convolution's kernel: a [B, C, H, W], b [B, O, H', W'], padded as given.

    A convolution over one image with the batch as its groups has the per-example gradients as its
    weight gradient, so they cost what the batch gradient costs. With few positions and large
    kernels the norm comes from Gram matrices over the positions instead, and nothing is kept.
    """

    def __init__(self, module: nn.Conv2d, a: Tensor, b: Tensor, padding: tuple[int, int]):
        self.module, self.a, self.b, self.padding = module, a, b, padding
        self._weight: Tensor | None = None

    def squared_norms(self) -> Tensor:
        total = self._weight_squared_norms()
        return total + self._bias_rows().square().sum(1) if self._biased else total

    @property
    def _biased(self) -> bool:
        return self.module.bias is not None

    def _weight_squared_norms(self) -> Tensor:
        o, i = self.module.weight.flatten(1).shape
        t = self.b[0, 0].numel()
        # The factor 2: a Gram matrix is slower per operation, and the sum still has to be made.
        if self._weight is None and self.module.groups == 1 and 2 * t * (i + o) < i * o:
            return gram_squared_norms(self._patches().mT, self.b.flatten(2).mT)
        return self._weight_rows().square().sum(1)

    def _patches(self) -> Tensor:
        """What each output pixel saw [B, I, T]."""
        m = self.module
        return F.unfold(self.a, m.kernel_size, m.dilation, self.padding, m.stride)

    def _weight_rows(self) -> Tensor:
        if self._weight is None:
            examples, (channels, *image) = len(self.a), self.a.shape[1:]
            one_image = self.a.reshape(1, examples * channels, *image)
            adjoint = self.b.reshape(1, -1, *self.b.shape[2:])
            shape = (examples * len(self.module.weight), *self.module.weight.shape[1:])
            rows = self._kernel_gradient(one_image, shape, adjoint, examples * self.module.groups)
            self._weight = rows.reshape(examples, -1)
        return self._weight

    def _kernel_gradient(self, a: Tensor, shape: tuple, b: Tensor, groups: int) -> Tensor:
        m = self.module
        return conv2d_weight(a, shape, b, m.stride, self.padding, m.dilation, groups)

    def _bias_rows(self) -> Tensor:
        return self.b.flatten(2).sum(2)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if self._weight is not None:
            weight = factors @ self._weight
        else:
            scaled = self.b * factors.view(-1, 1, 1, 1)
            shape = tuple(self.module.weight.shape)
            weight = self._kernel_gradient(self.a, shape, scaled, self.module.groups).flatten()
        return torch.cat([weight, factors @ self._bias_rows()]) if self._biased else weight

    def dot(self, vector: Tensor) -> Tensor:
        m = self.module
        kernel = vector[: m.weight.numel()].view_as(m.weight)
        through = F.conv2d(self.a, kernel, None, m.stride, self.padding, m.dilation, m.groups)
        total = (through * self.b).sum((1, 2, 3))
        return total + self._bias_rows() @ vector[m.weight.numel() :] if self._biased else total

    def stack(self) -> Tensor:
        weight = self._weight_rows()
        return torch.cat([weight, self._bias_rows()], 1) if self._biased else weight

    def cleaned(self, factors: Tensor) -> "Convolution":
        a, b = without(self.a, factors), without(self.b, factors)
        return Convolution(self.module, a, b, self.padding)


class Lookup:
    """The gradient of a table whose rows were looked up: indices [B, T] int64, b [B, T, O].

    Two positions of an example meet in its norm exactly if they looked up the same row.
    """

    def __init__(self, indices: Tensor, b: Tensor, rows: int):
        self.indices, self.b, self.rows = indices, b, rows

    def squared_norms(self) -> Tensor:
        same = self.indices.unsqueeze(2) == self.indices.unsqueeze(1)
        norms = torch.linalg.vector_norm(self.b, dim=2)
        largest = (norms.unsqueeze(2) * norms.unsqueeze(1) * same).sum((1, 2))
        return rounded_up(((self.b @ self.b.mT) * same).sum((1, 2)), largest, self.b.shape[1:])

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = (self.b * factors.view(-1, 1, 1)).flatten(0, 1)
        table = scaled.new_zeros(self.rows, scaled.shape[1])
        return table.index_add_(0, self.indices.flatten(), scaled).flatten()

    def dot(self, vector: Tensor) -> Tensor:
        return (vector.view(self.rows, -1)[self.indices] * self.b).sum((1, 2))

    def stack(self) -> Tensor:
        examples, _, width = self.b.shape
        table = self.b.new_zeros(examples, self.rows, width)
        index = self.indices.unsqueeze(2).expand_as(self.b)
        return table.scatter_add_(1, index, self.b).flatten(1)

    def cleaned(self, factors: Tensor) -> "Lookup":
        return Lookup(self.indices, without(self.b, factors), self.rows)


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


def linear(module: nn.Linear, a: Tensor, b: Tensor) -> LayerGradient:
    """A linear layer, its inputs with any number of axes between batch and features."""
    a, b = (x.reshape(len(x), -1, x.shape[-1]) for x in (a, b))
    return Outer(a, b, module.bias is not None)


def conv2d(module: nn.Conv2d, a: Tensor, b: Tensor) -> LayerGradient:
    """A two-dimensional convolution of any stride, padding, dilation and groups."""
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        a = F.pad(a, module._reversed_padding_repeated_twice, mode=mode)
        return Convolution(module, a, b, padding=(0, 0))
    return Convolution(module, a, b, module.padding)


def group_norm(module: nn.GroupNorm, a: Tensor, b: Tensor) -> LayerGradient:
    """The scale's gradient is b times the normalised input, summed over positions."""
    normal = F.group_norm(a, module.num_groups, eps=module.eps)
    shape = (*a.shape[:2], -1)
    return _affine((b * normal).reshape(shape).sum(2), b.reshape(shape).sum(2), module)


def layer_norm(module: nn.LayerNorm, a: Tensor, b: Tensor) -> LayerGradient:
    """As for group normalisation, over the axes before the normalised ones."""
    normal = F.layer_norm(a, module.normalized_shape, eps=module.eps)
    shape = (len(a), -1, module.weight.numel())
    return _affine((b * normal).reshape(shape).sum(1), b.reshape(shape).sum(1), module)


def _affine(scale: Tensor, shift: Tensor, module: nn.GroupNorm | nn.LayerNorm) -> Rows:
    return Rows(scale if module.bias is None else torch.cat([scale, shift], 1))


def embedding(module: nn.Embedding, a: Tensor, b: Tensor) -> LayerGradient:
    """A table look-up; the padding row learns nothing."""
    indices, b = a.reshape(len(a), -1), b.reshape(len(b), -1, b.shape[-1])
    if module.padding_idx is not None:
        b = b.masked_fill((indices == module.padding_idx).unsqueeze(2), 0)
    return Lookup(indices, b, module.num_embeddings)


def anything(module: nn.Module, a: Tensor, b: Tensor) -> LayerGradient:
    """Any module with one input and one output, through the vectorised adjoint of its own forward."""
    named = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}

    def one(a: Tensor, b: Tensor) -> dict[str, Tensor]:
        def forward(named: dict[str, Tensor]) -> Tensor:
            return functional_call(module, named, (a.unsqueeze(0),)).squeeze(0)

        return vjp(forward, named)[1](b)[0]

    rows = vmap(one, randomness="different")(a, b)
    return Rows(torch.cat([rows[n].flatten(1) for n in named], 1))


Rule = Callable[..., LayerGradient]

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv2d: conv2d,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}
"""Modules whose per-example gradients are known in closed form, by their exact type."""
