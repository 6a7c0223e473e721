"""The convolutional networks with tanh that are common in private training on small images."""

from dataclasses import dataclass

from torch import nn

from dpbench.learning.models.sample_convnet import small_convnet
from dpbench.learning.models.sizes import image_shape

BLOCKS, HIDDEN = (32, 64, 128), 128


@dataclass(frozen=True)
class TemperedCnn:
    """Two convolutions and a hidden layer for grey images, six and one for coloured ones; tanh.

    Papernot et al. 2021 ("Tempered Sigmoid Activations for Deep Learning with Differential
    Privacy"), as in Tramer and Boneh 2021, Tables 8 and 9: 26,010 parameters on 28x28x1, and
    550,570 on 32x32x3.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = image = image_shape("tempered_cnn", shape, least=16)
        if channels == 1:
            return small_convnet(image, classes, 2, nn.Tanh)
        return _coloured(channels, sides, classes)


def _coloured(channels: int, sides: list[int], classes: int) -> nn.Module:
    """Three blocks of two 3x3 convolutions and a pool, and 128 hidden units."""
    layers: list[nn.Module] = []
    for width in BLOCKS:
        for inputs in (channels, width):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.Tanh()]
        layers.append(nn.MaxPool2d(2))
        channels = width
    height, width = (side // 2 ** len(BLOCKS) for side in sides)
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        *[nn.Linear(channels * height * width, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, classes)],
    )
