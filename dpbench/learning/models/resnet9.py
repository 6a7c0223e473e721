"""The ResNet-9 of the private-training literature."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from dpbench.learning.models.sizes import image_shape
from dpbench.learning.models.standardised import convolution
from dpbench.system.validate import Count, one_of

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class Residual(nn.Sequential):
    """A sequence of modules with a skip connection."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + super().forward(inputs)


@dataclass(frozen=True)
class ResNet9:
    """Eight blocks of 3x3 convolution, GroupNorm and activation, two residual pairs, one linear.

    Widths w, 2w (pool), residual 2w 2w, 4w (pool), 4w (pool), residual 4w 4w, 2x2 maxima, linear:
    the layout of Klause et al. 2022, "Differentially private training of residual networks with
    scale normalisation" (mrchntia/ScaleNorm, w = 64, Mish, 32 groups), which shares authors with
    the BAM paper, which says no more than "ResNet-9". Weight standardisation as in De et al. 2022.
    2,447,946 parameters for w = 64 on 32x32x3 and ten classes; standardisation adds 1,472 gains.
    scale_norm: whether GroupNorm follows each residual pair, after the sum, as they propose.
    """

    width: Count
    groups: Count
    activation: str
    weight_standardisation: bool
    scale_norm: bool = False

    def __post_init__(self) -> None:
        one_of("model.activation", self.activation, ACTIVATIONS)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape("resnet9", shape, least=8)
        w = self.width
        return nn.Sequential(
            self._block(channels, w),
            *[self._block(w, 2 * w), nn.MaxPool2d(2)],
            *self._residual(2 * w),
            *[self._block(2 * w, 4 * w), nn.MaxPool2d(2)],
            *[self._block(4 * w, 4 * w), nn.MaxPool2d(2)],
            *self._residual(4 * w),
            *[nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16 * w, classes)],
        )

    def _residual(self, channels: int) -> list[nn.Module]:
        pair = Residual(self._block(channels, channels), self._block(channels, channels))
        return [pair, nn.GroupNorm(self.groups, channels)] if self.scale_norm else [pair]

    def _block(self, in_channels: int, channels: int) -> nn.Module:
        standardise = self.weight_standardisation
        return nn.Sequential(
            convolution(in_channels, channels, 3, bias=False, standardise=standardise),
            nn.GroupNorm(self.groups, channels),
            ACTIVATIONS[self.activation](),
        )
