"""The patches that a convolution reads, and their inner products."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.step.gradients.norms import Term, set_values
from dpbench.step.gradients.position_norms import Gram, gram, inner_products, of_products
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products

GROUPED = ("cpu",)
"""Devices on which a convolution with a group for each example is fast. cuDNN starts a kernel or
more for each of the groups; there, products with the patches take their place."""

SHIFTS = 128
"""The multiplications that take as long as adding shifted products, for each pair of pixels."""


@dataclass(frozen=True)
class PatchProducts:
    """Inner products of the patches of a convolution without groups, for examples of K views each.

    <patch_t(x), patch_s(y)> is the sum of <x_(t+o), y_(s+o)> over the offsets o of the kernel. So
    without a stride pixels are multiplied, and shifted products added along one axis of the image
    after the other. Inputs are [B K, C, *image], zero-padded by `padding`; T output positions.
    """

    module: nn.Conv1d | nn.Conv2d
    padding: tuple[int, ...]
    views: int

    @property
    def _strided(self) -> bool:
        return any(stride > 1 for stride in self.module.stride)

    def operations(self, image: torch.Size, positions: int) -> int:
        """The number of multiplications for an example, or of as many as take the same time."""
        channels, kernel = self.module.in_channels, math.prod(self.module.kernel_size)
        if self._strided:
            return (self.views * positions) ** 2 * channels * kernel
        return (self.views * math.prod(image)) ** 2 * (channels + SHIFTS)

    def products(self, x: Tensor, y: Tensor) -> Tensor:
        """<patch_t(x), patch_s(y)> [B, K T, K T]."""
        if self._strided:
            return self._patches(x) @ self._patches(y).mT
        pixels = by_position(x, self.views) @ by_position(y, self.views).mT
        return self._over_patches(pixels, x.shape[2:])

    def gram(self, x: Tensor, by: Products = FLOAT32_PRODUCTS) -> Gram:
        """The inner products of an example's own patches, by products of which x is an operand."""
        if self._strided:
            return gram(self._patches(x), by)
        image, kernel = x.shape[2:], self.module.kernel_size
        products, roundings, underflow = products_of_pixels(x, self.views, by)
        if not fast_groups(x):  # the squares of patches are sums, too: on the diagonal
            taps = math.prod(kernel)
            summed = self._over_patches(products, image)
            return of_products(summed, roundings + taps, underflow * taps)
        norms = PatchNorms(of_products(products, roundings, underflow).norms, self, image)
        return Gram(self._over_patches(products, image), norms, roundings + sum(kernel))

    def squared_norms(self, squares: Tensor, image: torch.Size) -> Tensor:
        """Those of patches [B, K T], from those of pixels [B, K P]."""
        by_view = patches(self.module, squares.view(-1, 1, *image), self.padding).sum(1)
        return by_view.view(len(squares), -1)

    def _patches(self, x: Tensor) -> Tensor:
        return by_position(patches(self.module, x, self.padding), self.views)

    def _over_patches(self, products: Tensor, image: torch.Size) -> Tensor:
        """[B, K T, K T] from the products of pixels [B, K P, K P]."""
        axes, sides = len(image), (self.views, *image)
        x = products.view(len(products), *sides, *sides)
        if not fast_groups(products):
            return self._summed_at_once(x, axes).view(
                len(x), -1, self.views * self._positions(image)
            )
        for axis in range(axes):
            x = self._over_offsets(x, axis, left=2 + axis, right=3 + axes + axis)
        return x.flatten(2 + axes).flatten(1, 1 + axes)

    def _positions(self, image: torch.Size) -> int:
        return math.prod(output_sides(self.module, image, self.padding))

    def _summed_at_once(self, x: Tensor, axes: int) -> Tensor:
        """As by `_over_offsets` for all axes, in three operations: a GPU does not wait for memory
        that is far apart."""
        sides = [side for pad in reversed(self.padding) for side in (pad, pad)]
        both = [*sides, 0, 0, *sides]
        x = F.pad(x, both) if any(sides) else x
        kernel, dilation = self.module.kernel_size, self.module.dilation
        image = slice(2, 2 + axes), slice(3 + axes, 3 + 2 * axes)
        outputs = [
            side - step * (taps - 1)
            for side, step, taps in zip(x.shape[image[0]], dilation, kernel, strict=True)
        ]
        left, right = (x.stride()[at] for at in image)
        # Along the kernel both patches move.
        along = [step * (p + q) for step, p, q in zip(dilation, left, right, strict=True)]
        shape = (*x.shape[:2], *outputs, x.shape[2 + axes], *outputs, *kernel)
        patches = x.as_strided(shape, (*x.stride(), *along))
        return patches.sum([*range(-axes, 0)])

    def _over_offsets(self, x: Tensor, axis: int, left: int, right: int) -> Tensor:
        """The sums over a kernel's offsets along an axis of the image, `left` and `right` in x."""
        kernel, dilation = self.module.kernel_size[axis], self.module.dilation[axis]
        side = x.shape[left]
        outputs = side + 2 * self.padding[axis] - dilation * (kernel - 1)
        shape = list(x.shape)
        shape[left] = shape[right] = outputs
        total = x.new_zeros(shape)
        for tap in range(kernel):
            offset = dilation * tap - self.padding[axis]
            start = max(0, -offset)
            length = min(outputs, side - offset) - start
            if length > 0:  # a small image has offsets that reach no pixel
                shifted = x.narrow(left, start + offset, length)
                sums = total.narrow(left, start, length).narrow(right, start, length)
                sums += shifted.narrow(right, start + offset, length)
        return total


class PatchNorms(Term):
    """The norms of patches [B, K T], from those of pixels [B, K P]."""

    rank = 1

    def __init__(self, pixels: Term, products: PatchProducts, image: torch.Size):
        self.parts, self._products, self._image = (pixels,), products, image

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        pixels = [term.parts[0].value for term in terms]
        squares = zip(terms, torch._foreach_mul(pixels, pixels), strict=True)
        sums = [term._products.squared_norms(x, term._image) for term, x in squares]
        set_values(terms, torch._foreach_sqrt(sums))


def output_sides(
    module: nn.Conv1d | nn.Conv2d, image: torch.Size, padding: tuple[int, ...]
) -> tuple[int, ...]:
    """The sides of the outputs, *image'."""
    settings = zip(image, padding, module.kernel_size, module.stride, module.dilation, strict=True)
    return tuple(
        (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
        for side, pad, kernel, stride, dilation in settings
    )


def by_position(x: Tensor, views: int) -> Tensor:
    """[B, K T, c] from [B K, c, *image] with T pixels."""
    by_row = x.flatten(2).mT
    return by_row if views == 1 else by_row.reshape(len(x) // views, -1, x.shape[1])


def products_of_pixels(x: Tensor, views: int, by: Products) -> tuple[Tensor, int, float]:
    """The `inner_products` of x `by_position`."""
    if views > 1:
        return inner_products(by_position(x, views), by)
    columns = x.flatten(2)
    return inner_products(columns.mT, by, columns)


def over_image(x: Tensor) -> Tensor:
    """The sums [N, c] of x [N, c, *image]."""
    if x.dim() > 2 and x.is_contiguous():  # else in another order
        return x.sum([*range(2, x.dim())])
    return x.reshape(*x.shape[:2], -1).sum(2)


def fast_groups(x: Tensor) -> bool:
    """Whether a convolution with many groups is fast where x is."""
    return x.device.type in GROUPED


def patches(module: nn.Conv1d | nn.Conv2d, x: Tensor, padding: tuple[int, ...]) -> Tensor:
    """The input patch of each output position as columns [N, I, T], for padded x [N, C, *image]."""
    if not fast_groups(x):  # unfold starts a kernel for each image; this is one copy for all
        strided = _strided(module, x, padding)
        return strided.reshape(len(x), -1, math.prod(strided.shape[x.dim() :]))
    image, extra = (x, 0) if x.dim() == 4 else (x.unsqueeze(2), 1)
    kernel, dilation, stride = (
        (1,) * extra + tuple(p) for p in (module.kernel_size, module.dilation, module.stride)
    )
    return F.unfold(image, kernel, dilation, (0,) * extra + tuple(padding), stride)


def _strided(module: nn.Conv1d | nn.Conv2d, x: Tensor, padding: tuple[int, ...]) -> Tensor:
    """The patches as a view [N, C, *kernel, *image'] of x."""
    image = x.shape[2:]
    if any(padding):
        x = F.pad(x, [side for size in reversed(padding) for side in (size, size)])
    outputs = output_sides(module, image, padding)
    channels, *pixels = x.stride()[1:]
    offsets = [step * by for step, by in zip(pixels, module.dilation, strict=True)]
    starts = [step * by for step, by in zip(pixels, module.stride, strict=True)]
    shape = (*x.shape[:2], *module.kernel_size, *outputs)
    return x.as_strided(shape, (x.stride(0), channels, *offsets, *starts))
