"""A linear network with one weight per layer, whose flows are known analytically."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import squared_error
from dpbench.runs.training.float64 import Network
from dpbench.system.errors import UserError


class OneWeightPerLayer(nn.Module):
    """sum_r w_r x_r [B, 1] of inputs [B, L]; each w_r is a layer, initialised to 0."""

    def __init__(self, count: int):
        super().__init__()
        self.weights = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(count))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        parts = inputs.split(1, dim=1)
        return torch.stack([w(x) for w, x in zip(self.weights, parts, strict=True)]).sum(0)


@dataclass(frozen=True)
class Examples:
    """Regression by OneWeightPerLayer. inputs: [n, L]; targets: [n]."""

    inputs: Sequence[Sequence[float]]
    targets: Sequence[float]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.inputs}
        if len(widths) != 1 or len(self.inputs) != len(self.targets) or 0 in widths:
            raise UserError(
                "table.compute.by_hand needs a target for each row of inputs, and rows of equal "
                "length."
            )

    def network(self) -> Network:
        """The network with its initial weights."""
        return Network(OneWeightPerLayer(len(self.inputs[0])), squared_error)

    def batch(self) -> Batch:
        """All examples, in float64."""
        inputs, targets = (
            torch.tensor(part, dtype=torch.float64) for part in (self.inputs, self.targets)
        )
        return Batch(inputs, targets, torch.zeros(len(targets), dtype=torch.int64))
