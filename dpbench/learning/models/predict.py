"""Predictions of a model for all examples of a split."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Split
from dpbench.system.memory import run_with_halving

ByRow = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
"""Applies a function to the rows of inputs [B, ...]."""


@torch.no_grad()
def predict(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    split: Split,
    batch_size: int = 512,
    by_row: ByRow = lambda forward, inputs: forward(inputs),
) -> tuple[Tensor, Tensor]:
    """Outputs [n, K] and losses [n] of all examples, with the model in evaluation mode.

    by_row: that of an engine, for outputs that must not depend on other examples.
    batch_size: examples per pass; halved if memory runs out. With many more, a pass of a
    convolutional network on a CPU does not fit in the cache, and takes twice as long per example.
    """
    model.eval()

    def in_batches(size: int) -> tuple[Tensor, Tensor]:
        places, outputs, losses = [], [], []
        for indices, part in split.parts(size):
            places.append(indices)
            outputs.append(by_row(model, part.inputs))
            losses.append(loss(outputs[-1], part.targets))
        found = torch.cat(outputs), torch.cat(losses)
        if split.lengths is None:
            return found
        order = torch.cat(places).argsort()
        return found[0][order], found[1][order]

    return run_with_halving(in_batches, batch_size)[0]
