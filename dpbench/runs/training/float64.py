"""A run's network and examples in float64, for computations on all examples at once."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import LOSSES
from dpbench.runs.training.run import Run
from dpbench.step.gradients.engine import Loss
from dpbench.step.gradients.parameters import Parameters
from dpbench.step.gradients.vmap import Vmap
from dpbench.system.errors import UserError

MAX_NUMBERS = 10**8
"""The most entries of a Jacobian: 0.8 GB in float64."""


class Network:
    """A model in float64. loss: from outputs [n, K] and targets to losses [n]. gradients: the
    engine of per-example ones."""

    def __init__(self, model: nn.Module, loss: Loss):
        self.model, self.loss = model.double(), loss
        self.parameters = Parameters(self.model)
        self.gradients = Vmap(self.model, loss, self.parameters)


def in_float64(run: Run, folder: Path, seed: int, count: int) -> Batch:
    """The first `count` training examples; UserError for texts, or if there are fewer."""
    train = replace(run, seed=seed).load(folder).train
    if count > len(train):
        raise UserError(f"examples={count} is more than the {len(train)} training examples.")
    batch = train.at(torch.arange(count))
    if not batch.inputs.is_floating_point():
        raise UserError("derivatives in float64 need real-valued inputs, not texts.")
    return batch.each(lambda part: part.double() if part.is_floating_point() else part)


def initial_network(run: Run, seed: int, examples: int) -> Network:
    """The network with the seed's initial weights; UserError if its Jacobian would be too large."""
    model = replace(run, seed=seed).initial_model(torch.device("cpu"))
    size = examples * run.dataset.classes * sum(p.numel() for p in model.parameters())
    if size > MAX_NUMBERS:
        raise UserError(
            f"the Jacobian would have {size:.1g} numbers: choose a smaller model or fewer examples."
        )
    return Network(model, LOSSES[run.dataset.task])
