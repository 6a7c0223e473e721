"""The patches that a convolution reads, and their inner products."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.step.gradients.norms import Gram, gram

GROUPED = ("cpu",)
"""Devices on which a convolution with a group for each example is fast. cuDNN starts a kernel or
more for each of the groups; there, products with the patches take their place."""

SHIFTS = 128
"""The multiplications that take as long as adding shifted products, for each pair of pixels."""


@dataclass(frozen=True)
class PatchProducts:
    """Inner products of the patches of a convolution without groups, for examples of K views each.

    <patch_t(x), patch_s(y)> is the sum of <x_(t+o), y_(s+o)> over the offsets o of the kernel. So
    without a stride no patch is formed: pixels are multiplied, and shifted products added along one
    axis of the image after the other. With one, most pairs of pixels would never meet, and patches
    are multiplied.
    Inputs are [B K, C, *image], zero-padded by `padding`; T output positions, P pixels a view.
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

    def gram(self, x: Tensor) -> Gram:
        """The inner products of an example's own patches."""
        if self._strided:
            return gram(self._patches(x))
        image = x.shape[2:]
        pixels = gram(by_position(x, self.views))
        squares = pixels.norms.square().view(-1, 1, *image)
        norms = patches(self.module, squares, self.padding).sum(1).sqrt()
        return Gram(
            self._over_patches(pixels.products, image),
            norms.view(len(pixels.norms), -1),
            pixels.roundings + sum(self.module.kernel_size),
        )

    def _patches(self, x: Tensor) -> Tensor:
        return by_position(patches(self.module, x, self.padding), self.views)

    def _over_patches(self, products: Tensor, image: torch.Size) -> Tensor:
        """[B, K T, K T] from the products of pixels [B, K P, K P]."""
        axes, sides = len(image), (self.views, *image)
        x = products.unflatten(2, sides).unflatten(1, sides)
        for axis in range(axes):
            x = self._over_offsets(x, axis, left=2 + axis, right=3 + axes + axis)
        return x.flatten(2 + axes).flatten(1, 1 + axes)

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


def by_position(x: Tensor, views: int) -> Tensor:
    """[B, K T, c] from [B K, c, *image] with T pixels."""
    return x.flatten(2).mT.reshape(len(x) // views, -1, x.shape[1])


def fast_groups(x: Tensor) -> bool:
    """Whether a convolution with many groups is fast where x is."""
    return x.device.type in GROUPED


def patches(module: nn.Conv1d | nn.Conv2d, x: Tensor, padding: tuple[int, ...]) -> Tensor:
    """The input patch of each output position as columns [N, I, T], for padded x [N, C, *image]."""
    if not fast_groups(x):  # unfold starts a kernel for each image
        return _strided_patches(module, x, padding)
    image, extra = (x, 0) if x.dim() == 4 else (x.unsqueeze(2), 1)
    kernel, dilation, stride = (
        (1,) * extra + tuple(p) for p in (module.kernel_size, module.dilation, module.stride)
    )
    return F.unfold(image, kernel, dilation, (0,) * extra + tuple(padding), stride)


def _strided_patches(module: nn.Conv1d | nn.Conv2d, x: Tensor, padding: tuple[int, ...]) -> Tensor:
    """`patches`, by one copy for all images."""
    if any(padding):
        x = F.pad(x, [side for size in reversed(padding) for side in (size, size)])
    settings = zip(module.kernel_size, module.stride, module.dilation, strict=True)
    for axis, (kernel, stride, dilation) in enumerate(settings, start=2):
        x = x.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    axes = len(padding)  # x is [N, C, *image', *kernel]
    positions, offsets = range(2, 2 + axes), range(2 + axes, 2 + 2 * axes)
    return x.permute(0, 1, *offsets, *positions).flatten(1, 1 + axes).flatten(2)
