"""Trainable parameters as one vector: what moves theta moves the model, and nothing else."""

import torch
from torch import nn

from dpbench.step.gradients import Parameters


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))


def test_theta_starts_at_the_model_in_layers_that_cover_it():
    model = small_model()
    before = torch.cat([p.detach().clone().flatten() for p in model.parameters()])
    assert torch.equal(Parameters(model).theta.detach(), before)
    parameters = Parameters(small_model())
    assert [layer.name for layer in parameters.layers] == ["0", "2"]
    covered = [i for layer in parameters.layers for i in range(layer.at.start, layer.at.stop)]
    assert covered == list(range(len(parameters)))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert len(Parameters(model)) == 9 + 3 + 3


def test_an_optimiser_of_theta_moves_the_model():
    model = small_model()
    parameters = Parameters(model)
    theta = parameters.theta
    theta.grad = torch.arange(len(parameters), dtype=theta.dtype)
    start = theta.detach().clone()
    torch.optim.SGD([theta], lr=1).step()
    now = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(now, start - torch.arange(len(parameters)))


def test_frozen_parameters_are_left_out():
    model = small_model()
    model[0].bias.requires_grad_(False)
    bias = model[0].bias.detach().clone()
    parameters = Parameters(model)
    assert "0.bias" not in parameters.named
    assert len(parameters) == 12 + 8
    parameters.theta.data.zero_()
    assert torch.equal(model[0].bias, bias)


def test_flatten_inverts_unflatten_and_keeps_a_batch_axis():
    parameters = Parameters(small_model())
    vector = torch.arange(len(parameters), dtype=torch.float32)
    tensors = parameters.unflatten(vector)
    assert {n: t.shape for n, t in tensors.items()} == {
        n: p.shape for n, p in parameters.named.items()
    }
    assert torch.equal(parameters.flatten(tensors), vector)
    rows = torch.arange(3.0 * len(parameters)).view(3, -1)
    unflattened = [parameters.unflatten(row) for row in rows]
    batched = {n: torch.stack([t[n] for t in unflattened]) for n in parameters.named}
    assert torch.equal(parameters.flatten(batched, batched=True), rows)
