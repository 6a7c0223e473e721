"""What a model says of all examples of a split."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Split
from dpbench.memory import halving


@torch.no_grad()
def predict(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    split: Split,
    batch_size: int = 4096,
) -> tuple[Tensor, Tensor]:
    """Outputs [n, K] and losses [n] of all examples, by the model in test mode.

    So many at a time, or fewer where memory runs out.
    """
    model.eval()

    def predicted(size: int) -> tuple[Tensor, Tensor]:
        outputs, losses = [], []
        for indices in split.batches(size):
            part = split.at(indices)
            outputs.append(model(part.inputs))
            losses.append(loss(outputs[-1], part.targets))
        return torch.cat(outputs), torch.cat(losses)

    return halving(predicted, batch_size)[0]
