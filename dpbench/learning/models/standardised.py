"""Convolutions with standardised weights."""

import math

import torch
from torch import Tensor, nn


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose kernels are standardised to mean 0 and norm `gain`.

    Scaled weight standardisation with a learnt gain per output channel, as in De et al. 2022
    (`WSConv2D` of jax_privacy; Brock et al. 2021). The kernel depends on the weights and not on the
    inputs, so examples are not coupled.
    """

    floor = 1e-4  # the least n var w, see standardised_kernel

    def __init__(
        self, in_channels: int, channels: int, kernel: int, stride: int, padding: int, bias: bool
    ):
        super().__init__(in_channels, channels, kernel, stride, padding, bias=bias)
        self.gain = nn.Parameter(torch.ones(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        kernel = standardised_kernel(self.weight, self.gain, self.floor)
        return self._conv_forward(inputs, kernel, self.bias)


def standardised_kernel(weight: Tensor, gain: Tensor, floor: float) -> Tensor:
    """gain (w - mean w) / sqrt(n var w); weight [..., O, I, h, w], gain [..., O].

    floor: the least n var w.
    """
    axes = (-3, -2, -1)
    variance, mean = torch.var_mean(weight, axes, correction=0, keepdim=True)
    spread = (variance * math.prod(weight.shape[-3:])).clamp(min=floor)
    return (weight - mean) * spread.rsqrt() * gain[..., None, None, None]


def convolution(
    in_channels: int, channels: int, kernel: int, *, stride: int = 1, bias: bool, standardise: bool
) -> nn.Conv2d:
    """A convolution with `same` padding for odd kernels, standardised or plain."""
    kind = StandardisedConv2d if standardise else nn.Conv2d
    return kind(in_channels, channels, kernel, stride, kernel // 2, bias=bias)
