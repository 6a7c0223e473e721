"""The network that tests of engines change."""

from torch import Tensor, nn


class Net(nn.Module):
    """Two linear layers, to be used in ways that book-keeping cannot follow."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).tanh())
