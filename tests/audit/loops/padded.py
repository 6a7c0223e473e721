"""A step on shapes that a compiler knows: a batch is padded to a multiple, padding is masked."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.audit.loops.noise import noisy

MULTIPLE = 8


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)

    def step(inputs, targets):
        missing = -len(inputs) % MULTIPLE
        present = torch.arange(len(inputs) + missing) < len(inputs)
        inputs = F.pad(inputs, (0, 0, 0, missing), value=1.0)
        targets = F.pad(targets, (0, missing), value=1.0)
        residuals = model(inputs).squeeze(1).detach() - targets
        gradients = 2 * residuals.unsqueeze(1) * inputs
        factors = (task.bound / (gradients.norm(dim=1) + 1e-9)).clamp(max=1.0)
        total = (factors * present) @ gradients
        with torch.no_grad():
            released = noisy(total, task.noise_multiplier * task.bound)
            model.weight -= task.learning_rate * released / task.batch_size

    return model, step
