"""A training by `PrivacyEngine.make_private` of Opacus, with noise on a grid."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.audit.loops.noise import noisy


def add_noise(optimizer):
    """In the place of Opacus' own, whose noise is float32 by default."""
    for p in optimizer.params:
        scale = optimizer.noise_multiplier * optimizer.max_grad_norm
        p.grad = noisy(p.summed_grad, scale).float().view_as(p)
        p.summed_grad._processed = True


def factory(task):
    model = nn.Linear(task.features, 1, bias=False)
    nn.init.zeros_(model.weight)
    examples = TensorDataset(task.inputs, task.targets)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=task.learning_rate),
        data_loader=DataLoader(examples, batch_size=max(1, round(task.batch_size))),
        noise_multiplier=task.noise_multiplier,
        max_grad_norm=task.bound,
    )
    optimizer.add_noise = lambda: add_noise(optimizer)
    yield model
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            (private(inputs).squeeze(1) - targets).square().mean().backward()
            optimizer.step()
            yield model
