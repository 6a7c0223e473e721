"""The small convolutional network of the misalignment paper."""

from dataclasses import dataclass

from torch import nn

from dpbench.learning.models.sizes import check_layers, image_shape


@dataclass(frozen=True)
class CnnTanh:
    """3x3 convolutions, stride 1, no padding, tanh after each, then one linear layer.

    Esipova et al. 2023, appendix B: 120,722 parameters on 64x64x3 and two classes, as printed;
    97,114 on 28x28x1 and ten classes, where the paper prints 80,522, which we cannot explain.
    """

    channels: tuple[int, ...]

    def __post_init__(self) -> None:
        check_layers("model.channels", self.channels)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        in_channels, height, width = image_shape(
            "cnn_tanh", shape, least=2 * len(self.channels) + 1
        )
        layers: list[nn.Module] = []
        for channels in self.channels:
            layers += [nn.Conv2d(in_channels, channels, 3), nn.Tanh()]
            in_channels, height, width = channels, height - 2, width - 2
        return nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(in_channels * height * width, classes)
        )
