"""A training in plain torch on Poisson batches."""

import torch
from torch import nn

from tests.audit.loops.noise import noisy


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)
    draw = torch.Generator().manual_seed(task.seed)
    noise = torch.Generator().manual_seed(task.seed + 1_000_003)
    inputs, targets = task.inputs, task.targets
    yield model
    for _ in range(task.steps):
        uniform = torch.rand(len(inputs), generator=draw, dtype=torch.float64)
        chosen = uniform < task.sample_rate
        x, y = inputs[chosen], targets[chosen]
        residuals = model(x).squeeze(1).detach() - y
        gradients = 2 * residuals.unsqueeze(1) * x
        factors = (task.bound / (gradients.norm(dim=1) + 1e-9)).clamp(max=1.0)
        total = factors @ gradients
        with torch.no_grad():
            released = noisy(total, task.noise_multiplier * task.bound, noise)
            model.weight -= task.learning_rate * released / task.batch_size
        yield model
