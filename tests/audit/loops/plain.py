"""A step in plain torch: one backward pass for each example, a linear model."""

import torch
from torch import nn

from tests.audit.loops.noise import noisy


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)
    parameters = list(model.parameters())

    def step(inputs, targets):
        sums = [torch.zeros_like(p) for p in parameters]
        for x, y in zip(inputs, targets, strict=True):
            loss = (model(x).squeeze() - y) ** 2
            gradients = torch.autograd.grad(loss, parameters)
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            factor = min(1.0, task.bound / float(norm + 1e-9))
            for total, gradient in zip(sums, gradients, strict=True):
                total += factor * gradient
        with torch.no_grad():
            for p, total in zip(parameters, sums, strict=True):
                released = noisy(total, task.noise_multiplier * task.bound)
                p -= task.learning_rate * released / task.batch_size

    return model, step
