"""A step of Opacus: its wrapped module and its optimizer, with noise on a grid."""

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from tests.audit.loops.noise import noisy


class OnGrid(DPOptimizer):
    """Opacus' optimizer, whose noise is float32 by default."""

    def add_noise(self):
        for p in self.params:
            scale = self.noise_multiplier * self.max_grad_norm
            p.grad = noisy(p.summed_grad, scale).float().view_as(p)
            p.summed_grad._processed = True


def factory(task):
    model = nn.Sequential(nn.Linear(task.features, 8), nn.ReLU(), nn.Linear(8, 1))
    private = GradSampleModule(model)
    optimizer = OnGrid(
        torch.optim.SGD(model.parameters(), lr=task.learning_rate),
        noise_multiplier=task.noise_multiplier,
        max_grad_norm=task.bound,
        expected_batch_size=task.batch_size,
    )

    def step(inputs, targets):
        optimizer.zero_grad()
        (private(inputs).squeeze(1) - targets).square().mean().backward()
        optimizer.step()

    return model, step
