"""Small networks in float64 of which everything can be worked out by hand or by loops."""

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy, squared_error
from dpbench.runs.training.float64 import Network


class TwoLayers(nn.Module):
    """w1 x1 + w2 x2 with a layer for each of the two weights, both 0 at first."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Linear(1, 1, bias=False) for _ in range(2))
        for layer in (self.first, self.second):
            nn.init.zeros_(layer.weight)

    def forward(self, inputs):
        return self.first(inputs[:, :1]) + self.second(inputs[:, 1:])


def examples(inputs, targets):
    inputs = torch.as_tensor(inputs, dtype=torch.float64)
    return Batch(inputs, torch.as_tensor(targets), torch.zeros(len(inputs), dtype=torch.int64))


@pytest.fixture
def stuck():
    """Two examples that pull each layer with opposite signs, and their network: H is [5 4; 4 5]."""
    batch = examples([[1, 2], [2, 1]], torch.tensor([10.0, -10.0], dtype=torch.float64))
    return Network(TwoLayers(), squared_error), batch


@pytest.fixture
def outvoted():
    """One example far off against nine others of small loss, on a linear network; H > 0."""
    model = nn.Linear(11, 1, bias=False)
    nn.init.zeros_(model.weight)
    own = 0.1 * torch.eye(10, dtype=torch.float64)
    inputs = torch.cat([torch.ones(10, 1, dtype=torch.float64), own], 1)
    targets = torch.tensor([-100.0] + 9 * [1.0], dtype=torch.float64)
    return Network(model, squared_error), examples(inputs, targets)


@pytest.fixture
def perceptron():
    """perceptron(seed, outputs, n, widths): a tanh network and made-up examples of its task."""

    def make(seed, outputs, n, widths=(4, 3)):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            inputs = torch.randn(n, 5, dtype=torch.float64)
            layers, wide = [], 5
            for width in (*widths, outputs):
                layers += [nn.Linear(wide, width), nn.Tanh()]
                wide = width
            numbers, classes = torch.randn(n, dtype=torch.float64), torch.randint(outputs, (n,))
        model = nn.Sequential(*layers[:-1])
        if outputs == 1:
            return Network(model, squared_error), examples(inputs, numbers)
        return Network(model, cross_entropy), examples(inputs, classes)

    return make
