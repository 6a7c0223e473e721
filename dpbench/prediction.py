"""What a model says of all examples of a split."""

import torch
from torch import Tensor

from dpbench.data.dataset import Split
from dpbench.gradients import Engine
from dpbench.memory import halving


@torch.no_grad()
def predict(engine: Engine, split: Split, batch_size: int = 4096) -> tuple[Tensor, Tensor]:
    """Outputs [n, K] and training losses [n] of all examples, by the model in test mode.

    So many at a time, or fewer where memory runs out.
    """
    engine.model.eval()

    def predicted(size: int) -> tuple[Tensor, Tensor]:
        outputs, losses = [], []
        for indices in split.batches(size):
            part = split.at(indices)
            outputs.append(engine.model(part.inputs))
            losses.append(engine.loss(outputs[-1], part.targets))
        return torch.cat(outputs), torch.cat(losses)

    return halving(predicted, batch_size)[0]
