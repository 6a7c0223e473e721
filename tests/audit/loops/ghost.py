"""A step with ghost norms: a linear layer used at two positions, two backward passes."""

import torch
from torch import nn

from tests.audit.loops.noise import noisy


def factory(task):
    model = nn.Linear(task.features // 2, 1)

    def outputs(inputs):
        """Outputs [B, 2] at the two positions."""
        return model(inputs.view(len(inputs), 2, task.features // 2)).squeeze(2)

    def losses(z, targets):
        return (z.sum(1) - targets) ** 2

    def norms(inputs, targets):
        z = outputs(inputs).detach().requires_grad_()
        (slopes,) = torch.autograd.grad(losses(z, targets).sum(), z)
        positions = inputs.view(len(inputs), 2, task.features // 2)
        products = positions @ positions.mT + 1  # the bias has an input of 1
        pairs = products * slopes.unsqueeze(1) * slopes.unsqueeze(2)
        return pairs.sum((1, 2)).clamp(min=0).sqrt()

    def step(inputs, targets):
        factors = (task.bound / (norms(inputs, targets) + 1e-9)).clamp(max=1.0)
        weighted = (factors * losses(outputs(inputs), targets)).sum()
        sums = torch.autograd.grad(weighted, list(model.parameters()))
        with torch.no_grad():
            for p, total in zip(model.parameters(), sums, strict=True):
                released = noisy(total, task.noise_multiplier * task.bound)
                p -= task.learning_rate * released / task.batch_size

    return model, step
