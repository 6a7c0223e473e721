"""A step on two workers, each of which clips its part of a batch and draws a part of the noise."""

import math

import torch
from torch import nn

from tests.audit.loops.noise import noisy

WORKERS = 2


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)
    seeds = [WORKERS * task.seed + rank for rank in range(WORKERS)]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def clipped_sum(inputs, targets):
        residuals = model(inputs).squeeze(1).detach() - targets
        gradients = 2 * residuals.unsqueeze(1) * inputs
        factors = (task.bound / (gradients.norm(dim=1) + 1e-9)).clamp(max=1.0)
        return factors @ gradients

    def step(inputs, targets):
        scale = task.noise_multiplier * task.bound / math.sqrt(WORKERS)
        reduced = torch.zeros(task.features, dtype=torch.float64)
        for rank, generator in enumerate(generators):
            part = slice(rank, None, WORKERS)
            total = clipped_sum(inputs[part], targets[part])
            reduced += noisy(total, scale, generator)
        with torch.no_grad():
            model.weight -= task.learning_rate * reduced / task.batch_size

    return model, step
