"""The small convolutional networks on scattering features of Tramer and Boneh 2021."""

from dataclasses import dataclass

from torch import nn

from dpbench.learning.models.sizes import image_shape

WIDTH, GREY_WIDTHS, HIDDEN = 64, (16, 32), 32


@dataclass(frozen=True)
class ScatteringCnn:
    """Two 3x3 convolutions with tanh and one linear layer, or two if `grey`.

    Tramer and Boneh 2021 ("Differentially Private Learning Needs Better Features"; `CIFAR10_CNN`
    and `MNIST_CNN` of ftramer/Handcrafted-DP). For coloured images 64 channels, a 2x2 pool between
    the convolutions and no hidden layer: 187,210 parameters on the 243x8x8 features of CIFAR-10.
    For grey ones 16 channels with stride 2, 32 channels and 32 hidden units: 33,066 parameters on
    the 81x7x7 features of MNIST.
    """

    grey: bool

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = image_shape("scattering_cnn", shape, least=2)
        return _grey(channels, sides, classes) if self.grey else _coloured(channels, sides, classes)


def _coloured(channels: int, sides: list[int], classes: int) -> nn.Module:
    height, width = (side // 2 for side in sides)
    return nn.Sequential(
        *[nn.Conv2d(channels, WIDTH, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)],
        *[nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Tanh(), nn.Flatten()],
        nn.Linear(WIDTH * height * width, classes),
    )


def _grey(channels: int, sides: list[int], classes: int) -> nn.Module:
    height, width = ((side + 1) // 2 for side in sides)
    first, second = GREY_WIDTHS
    return nn.Sequential(
        *[nn.Conv2d(channels, first, 3, stride=2, padding=1), nn.Tanh()],
        *[nn.Conv2d(first, second, 3, padding=1), nn.Tanh(), nn.Flatten()],
        *[nn.Linear(second * height * width, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, classes)],
    )
