"""Wide residual networks without batch normalisation."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from torch import Tensor, nn

from dpbench.learning.models.sizes import MAX_LAYERS, image_shape
from dpbench.learning.models.standardised import convolution
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, integer

ORDERS = {0: (True, True), 1: (False, False), 2: (False, True), 3: (True, False)}
"""By order, whether GroupNorm comes after ReLU on the residual and on the skip branch."""


class Block(nn.Module):
    """The sum of two branches: residual and skip."""

    def __init__(self, residual: nn.Module, skip: nn.Module):
        super().__init__()
        self.residual, self.skip = residual, skip

    def forward(self, inputs: Tensor) -> Tensor:
        return self.residual(inputs) + self.skip(inputs)


@dataclass(frozen=True)
class WideResNet:
    """WRN-depth-width of De et al. 2022 ("Unlocking high-accuracy ..."), without batch norms.

    Three stages of (depth - 4) / 6 blocks with 16, 32 and 64 times `width` channels; ReLU, then
    GroupNorm, then convolution, in this order; the first block of a stage has a convolution on its
    skip branch and, from the second stage on, stride 2. Source: `WideResNet` of jax_privacy, which
    pads strided convolutions on one side only; here both sides are padded. WRN-16-4 has 2,753,818
    parameters on 32x32x3 and ten classes, and 2,751,562 without weight standardisation.

    order: 0 has ReLU before GroupNorm, 1 GroupNorm before ReLU, on both branches of a block; 2 the
    latter on the residual branch only, 3 on the skip branch only. Sander et al. 2023, "TAN without
    a burn" (`order1` of facebookresearch/tan). After the last block, ReLU comes first in all four.
    scale_norm: whether GroupNorm follows the sum of the branches of a block (Klause et al. 2022).
    """

    depth: int
    width: Count
    groups: Count
    weight_standardisation: bool
    order: Annotated[int, Meta(ge=0, le=max(ORDERS))] = 0
    scale_norm: bool = False

    def __post_init__(self) -> None:
        if integer("model.depth", self.depth, 10, MAX_LAYERS) % 6 != 4:
            raise UserError(f"depth={self.depth} is not one of 10, 16, 22, 28, ... (6 n + 4).")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        in_channels, _, _ = image_shape("wide_resnet", shape, least=4)
        layers: list[nn.Module] = [self._convolution(in_channels, 16, 3, stride=1)]
        in_channels = 16
        for stride, base in ((1, 16), (2, 32), (2, 64)):
            channels = base * self.width
            layers += self._stage(in_channels, channels, stride)
            in_channels = channels
        return nn.Sequential(
            *layers,
            *[nn.ReLU(), nn.GroupNorm(self.groups, in_channels)],
            *[nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, classes)],
        )

    def _stage(self, in_channels: int, channels: int, stride: int) -> list[nn.Module]:
        _, norm_last = ORDERS[self.order]
        projection = nn.Sequential(*self._layer(in_channels, channels, 1, stride, norm_last))
        first = Block(self._residual(in_channels, channels, stride), projection)
        others = (self.depth - 4) // 6 - 1
        residuals = [self._residual(channels, channels, stride=1) for _ in range(others)]
        blocks = [first, *(Block(residual, nn.Identity()) for residual in residuals)]
        return [layer for block in blocks for layer in (block, *self._scale_norm(channels))]

    def _scale_norm(self, channels: int) -> list[nn.Module]:
        return [nn.GroupNorm(self.groups, channels)] if self.scale_norm else []

    def _residual(self, in_channels: int, channels: int, stride: int) -> nn.Module:
        norm_last, _ = ORDERS[self.order]
        first = self._layer(in_channels, channels, 3, stride, norm_last)
        return nn.Sequential(*first, *self._layer(channels, channels, 3, 1, norm_last))

    def _layer(
        self, in_channels: int, channels: int, kernel: int, stride: int, norm_last: bool
    ) -> list[nn.Module]:
        relu, norm = nn.ReLU(), nn.GroupNorm(self.groups, in_channels)
        pair = [relu, norm] if norm_last else [norm, relu]
        return [*pair, self._convolution(in_channels, channels, kernel, stride)]

    def _convolution(self, in_channels: int, channels: int, kernel: int, stride: int) -> nn.Module:
        standardise = self.weight_standardisation
        return convolution(
            in_channels, channels, kernel, stride=stride, bias=True, standardise=standardise
        )
