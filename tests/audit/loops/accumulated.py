"""A step that accumulates physical batches, and draws noise once."""

import torch
from torch import nn

from tests.audit.loops.noise import noisy


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)
    accumulated = torch.zeros_like(model.weight)

    def accumulate(inputs, targets):
        residuals = model(inputs).squeeze(1).detach() - targets
        gradients = 2 * residuals.unsqueeze(1) * inputs
        norms = gradients.norm(dim=1)
        factors = (task.bound / (norms + 1e-9)).clamp(max=1.0)
        accumulated.add_((factors @ gradients).unsqueeze(0))

    def step(inputs, targets):
        accumulated.zero_()
        size = task.physical_batch_size
        for part, labels in zip(inputs.split(size), targets.split(size), strict=True):
            accumulate(part, labels)
        with torch.no_grad():
            released = noisy(accumulated, task.noise_multiplier * task.bound)
            model.weight -= task.learning_rate * released / task.batch_size

    return model, step
