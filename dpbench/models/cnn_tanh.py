"""The small convolutional network of the misalignment paper."""

from dataclasses import dataclass

from torch import nn

from dpbench.errors import UserError


@dataclass(frozen=True)
class CnnTanh:
    """3x3 convolutions, stride 1, no padding, tanh after each, then one linear layer.

    Esipova et al. 2023, appendix B: 120,722 parameters on 64x64x3 and two classes, as printed;
    97,114 on 28x28x1 and ten classes, where the paper prints 80,522, which no reading gives.
    """

    channels: tuple[int, ...]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3:
            raise UserError(f"model=cnn_tanh needs images, and these inputs are {shape}; use mlp.")
        seen, height, width = shape
        layers: list[nn.Module] = []
        for channels in self.channels:
            layers += [nn.Conv2d(seen, channels, 3), nn.Tanh()]
            seen, height, width = channels, height - 2, width - 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(seen * height * width, classes))
