"""A step on normalised gradients, smaller than the bound by a stability constant."""

import torch
from torch import nn

from tests.audit.loops.noise import noisy

STABILITY = 0.01


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)

    def step(inputs, targets):
        residuals = model(inputs).squeeze(1).detach() - targets
        gradients = 2 * residuals.unsqueeze(1) * inputs
        norms = gradients.norm(dim=1)
        total = (task.bound / (norms + STABILITY * task.bound)) @ gradients
        with torch.no_grad():
            released = noisy(total, task.noise_multiplier * task.bound)
            model.weight -= task.learning_rate * released / task.batch_size

    return model, step
