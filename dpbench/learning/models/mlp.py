"""The multi-layer perceptron."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from dpbench.learning.models.sizes import check_layers
from dpbench.system.validate import one_of

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


@dataclass(frozen=True)
class Mlp:
    """Linear layers of the given widths with one activation between: 91,650 parameters on Adult."""

    widths: tuple[int, ...]
    activation: str

    def __post_init__(self) -> None:
        check_layers("model.widths", self.widths)
        one_of("model.activation", self.activation, ACTIVATIONS)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise([prod(shape), *self.widths, classes]):
            layers += [nn.Linear(inputs, outputs), ACTIVATIONS[self.activation]()]
        return nn.Sequential(*layers[:-1])
