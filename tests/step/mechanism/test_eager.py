"""torch's optimisers without the wrappers for its compiler: the same updates, to the bit."""

import inspect

import pytest
import torch
from torch import nn

from dpbench.step.mechanism.eager import eager_step

OPTIMIZERS = {
    name: made
    for name, made in inspect.getmembers(torch.optim, inspect.isclass)
    if issubclass(made, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")
}


def after(make, step, steps: int = 3) -> torch.Tensor:
    theta = nn.Parameter(torch.linspace(-1, 1, 5))
    optimizer = make([theta])
    for number in range(steps):
        theta.grad = torch.linspace(0, number, 5)
        step(optimizer)
    return theta.detach()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_moves_theta_as_with_its_wrappers(name):
    plain = after(OPTIMIZERS[name], lambda optimizer: optimizer.step())
    assert torch.equal(after(OPTIMIZERS[name], eager_step), plain)
    assert not torch.equal(plain, torch.linspace(-1, 1, 5))


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1},
        {"maximize": True},
        {"fused": True},
        {"foreach": True},
        {"lr": torch.tensor(0.5)},
    ],
    ids=str,
)
def test_sgd_moves_theta_as_with_its_wrappers_whatever_its_settings(settings):
    def make(parameters):
        return torch.optim.SGD(parameters, **{"lr": 0.3} | settings)

    assert torch.equal(after(make, eager_step), after(make, lambda optimizer: optimizer.step()))


def test_parameters_without_a_gradient_stay_and_each_group_has_its_rate():
    thetas = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    groups = [{"params": thetas[:2], "lr": 0.5}, {"params": thetas[2:]}]
    optimizer = torch.optim.SGD(groups, lr=0.25)
    thetas[0].grad = thetas[2].grad = torch.ones(2)
    eager_step(optimizer)
    assert [float(theta.detach()[0]) for theta in thetas] == [0.5, 1.0, 0.75]


def test_a_custom_optimizer_keeps_its_own_step_and_hooks_are_called():
    class Halving(torch.optim.SGD):
        def step(self, closure=None):
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.mul_(0.5)

    optimizer = Halving([nn.Parameter(torch.ones(2))], lr=0.1)
    eager_step(optimizer)
    assert torch.equal(optimizer.param_groups[0]["params"][0].detach(), torch.full((2,), 0.5))
    theta, seen = nn.Parameter(torch.ones(2)), []
    optimizer = torch.optim.SGD([theta], lr=0.1)
    theta.grad = torch.ones(2)
    eager_step(optimizer)
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    eager_step(optimizer)
    assert seen == ["before", "after"]
    assert torch.allclose(theta.detach(), torch.full((2,), 0.8))


def test_a_differentiable_step_on_a_parameter_is_refused_as_by_torch():
    theta = nn.Parameter(torch.ones(2))
    theta.grad = torch.ones(2)
    with pytest.raises(RuntimeError, match="in-place"):
        eager_step(torch.optim.SGD([theta], lr=0.1, differentiable=True))
