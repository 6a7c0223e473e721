"""Convolutions with standardised weights."""

import math

import torch
from torch import Tensor, nn


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose kernels have mean 0 and norm `gain`, whatever the weights are.

    Scaled weight standardisation with a learnt gain per output channel, as De et al. 2022 use it
    (`WSConv2D` of jax_privacy; Brock et al. 2021). The kernel depends on the weights alone and not
    on the inputs, so the gradient of an example stays its own.
    """

    floor = 1e-4  # of the squared spread of a kernel's weights

    def __init__(
        self, seen: int, channels: int, kernel: int, stride: int, padding: int, bias: bool
    ):
        super().__init__(seen, channels, kernel, stride, padding, bias=bias)
        self.gain = nn.Parameter(torch.ones(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        kernel = standardised_kernel(self.weight, self.gain, self.floor)
        return self._conv_forward(inputs, kernel, self.bias)


def standardised_kernel(weight: Tensor, gain: Tensor, floor: float) -> Tensor:
    """gain (w - mean w) / sqrt(n var w); weight [..., O, I, h, w], gain [..., O].

    floor: of the squared spread n var w.
    """
    axes = (-3, -2, -1)
    variance, mean = torch.var_mean(weight, axes, correction=0, keepdim=True)
    spread = (variance * math.prod(weight.shape[-3:])).clamp(min=floor)
    return (weight - mean) * spread.rsqrt() * gain[..., None, None, None]


def convolution(
    seen: int, channels: int, kernel: int, *, stride: int = 1, bias: bool, standardise: bool
) -> nn.Conv2d:
    """A convolution that keeps the size of an image (up to its stride), standardised or plain."""
    make = StandardisedConv2d if standardise else nn.Conv2d
    return make(seen, channels, kernel, stride, kernel // 2, bias=bias)
