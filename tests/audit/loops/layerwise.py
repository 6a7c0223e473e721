"""A step that clips each layer: the squares of the layers' bounds add up to that of the claim."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from tests.audit.loops.noise import noisy


def factory(task):
    model = nn.Sequential(nn.Linear(task.features, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss_of(parameters, x, y):
        return (functional_call(model, parameters, (x,)).squeeze() - y) ** 2

    per_example = vmap(grad(loss_of), in_dims=(None, 0, 0))

    def step(inputs, targets):
        parameters = dict(model.named_parameters())
        bound = task.bound / math.sqrt(len(parameters))
        gradients = per_example(parameters, inputs, targets)
        with torch.no_grad():
            for name, p in parameters.items():
                norms = gradients[name].flatten(1).norm(dim=1)
                factors = (bound / (norms + 1e-9)).clamp(max=1.0)
                total = torch.tensordot(factors, gradients[name], 1)
                released = noisy(total, task.noise_multiplier * task.bound)
                p -= task.learning_rate * released / task.batch_size

    return model, step
