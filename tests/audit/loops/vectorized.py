"""A step with torch.func: all per-example gradients at once, a perceptron with biases."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from tests.audit.loops.noise import noisy


def factory(task):
    model = nn.Sequential(nn.Linear(task.features, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss_of(parameters, x, y):
        output = functional_call(model, parameters, (x.unsqueeze(0),))
        return (output.squeeze() - y) ** 2

    per_example = vmap(grad(loss_of), in_dims=(None, 0, 0))

    def step(inputs, targets):
        parameters = dict(model.named_parameters())
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        if len(inputs):
            gradients = per_example(parameters, inputs, targets)
            squares = [g.flatten(1).square().sum(1) for g in gradients.values()]
            norms = torch.stack(squares).sum(0).sqrt()
            factors = (task.bound / (norms + 1e-9)).clamp(max=1.0)
            sums = {name: torch.tensordot(factors, g, 1) for name, g in gradients.items()}
        with torch.no_grad():
            for name, p in parameters.items():
                released = noisy(sums[name], task.noise_multiplier * task.bound)
                p -= task.learning_rate * released / task.batch_size

    return model, step
