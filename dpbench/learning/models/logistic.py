"""Logistic regression, plain and as in the code of the misalignment paper."""

from dataclasses import dataclass
from math import prod

from torch import nn


@dataclass(frozen=True)
class Logistic:
    """One linear layer with an output per class: 120 parameters on Dutch.

    squashed: a sigmoid between the layer and the softmax cross-entropy, as in the code of Esipova
    et al. 2023. The loss of two classes then cannot fall below ln(1 + 1/e) = 0.313.
    """

    squashed: bool

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        linear = nn.Linear(prod(shape), classes)
        model = nn.Sequential(nn.Flatten(), linear)
        return model.append(nn.Sigmoid()) if self.squashed else model
