"""The convolutional network of Opacus' MNIST example."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from dpbench.learning.models.sizes import image_shape


@dataclass(frozen=True)
class SampleConvNet:
    """Convolutions of 8x8 and 4x4 with stride 2, ReLU and a pool of stride 1 each, then 512-32-K.

    Source: `SampleConvNet` of Opacus' examples/mnist.py, which the calibration paper (Bu et al.)
    trains: 26,010 parameters on 28x28x1 and ten classes. For other images the 512 changes.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return small_convnet(image_shape("sample_convnet", shape, least=14), classes, 3, nn.ReLU)


def small_convnet(
    shape: tuple[int, int, int], classes: int, padding: int, activation: Callable[[], nn.Module]
) -> nn.Module:
    """8x8 and 4x4 with stride 2, each with a pool of stride 1, and 32 hidden units."""
    channels, *sides = shape
    height, width = (((side + 2 * padding - 8) // 2 - 4) // 2 for side in sides)
    return nn.Sequential(
        *[nn.Conv2d(channels, 16, 8, stride=2, padding=padding), activation(), nn.MaxPool2d(2, 1)],
        *[nn.Conv2d(16, 32, 4, stride=2), activation(), nn.MaxPool2d(2, 1), nn.Flatten()],
        *[nn.Linear(32 * height * width, 32), activation(), nn.Linear(32, classes)],
    )
