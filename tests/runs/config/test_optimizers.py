"""Every optimiser of conf/optimizer takes private steps on the vector of all parameters."""

import pytest
import torch

from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.prepare import build
from dpbench.step.methods.dpsat import dpsat
from dpbench.step.methods.dpsgd import dpsgd

PARTS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.0}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": False}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 2e-3}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
}


@pytest.fixture(scope="module", params=options("optimizer"))
def optimizer(request):
    """The optimiser of a YAML file, for a list of parameters, and its name."""
    return request.param, build(compose([f"optimizer={request.param}"])).optimizer


def test_it_takes_private_steps_as_it_does_on_separate_parameters(optimizer, step_of, batch_of):
    _, make = optimizer
    step = step_of(dpsgd(0.5, "corrected"))
    parameters = step.engine.parameters
    step.optimizer = make([parameters.theta])
    named = parameters.unflatten(parameters.theta.detach().clone())
    apart = {name: torch.nn.Parameter(value.clone()) for name, value in named.items()}
    theirs = make(list(apart.values()))
    for size in (12, 0, 7):  # an empty batch is a step of noise
        before = parameters.theta.detach().clone()
        step(batch_of(size))
        assert torch.isfinite(parameters.theta).all()
        assert (parameters.theta != before).all()
        for name, gradient in parameters.unflatten(parameters.theta.grad).items():
            apart[name].grad = gradient
        theirs.step()
    ours = parameters.theta.detach()
    assert torch.allclose(ours, parameters.flatten(apart).detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("foreach", [True, False])
def test_a_method_keeps_only_what_a_step_released(optimizer, foreach, step_of, batch_of):
    # torch's foreach, the default on a GPU, writes Nesterov's step over the gradient.
    _, make = optimizer
    step = step_of(dpsat(0.5, 0.1))
    theta = step.engine.parameters.theta
    step.optimizer, released = make([theta], foreach=foreach), []
    step.optimizer.register_step_pre_hook(lambda *_: released.append(theta.grad.clone()))
    for size in (12, 0, 7):
        step(batch_of(size))
        assert torch.equal(step.released.gradient, released[-1])


def test_foreach_makes_the_same_steps(optimizer, step_of, batch_of):
    _, make = optimizer
    steps = [step_of(dpsat(0.5, 0.1)) for _ in range(2)]
    for step, foreach in zip(steps, (True, False), strict=True):
        step.optimizer = make([step.engine.parameters.theta], foreach=foreach)
        for size in (12, 0, 7):
            step(batch_of(size))
    ends = [step.engine.parameters.theta.detach() for step in steps]
    assert torch.allclose(*ends, rtol=1e-9, atol=1e-12)


def test_it_is_what_its_name_says_and_otherwise_the_library_s_own(optimizer):
    name, make = optimizer
    kind, said = PARTS[name]
    made = make([torch.nn.Parameter(torch.zeros(1))])
    own = kind([torch.nn.Parameter(torch.zeros(1))], **{"lr": made.defaults["lr"], **said})
    assert type(made) is kind
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in made.defaults.items()} == (
        own.defaults
    )
