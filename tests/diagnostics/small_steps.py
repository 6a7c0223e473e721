"""A tiny training split, and private steps on it put together by hand."""

import torch
from torch import nn

from dpbench.data.dataset import Batch, Split
from dpbench.gradients import make_engine
from dpbench.models.architecture import cross_entropy
from dpbench.step import PrivateStep

FEATURES, CLASSES = 4, 2


def made_up(groups: list[int], seed: int = 0) -> Split:
    """A split whose examples have these groups, in double precision."""
    draw = torch.Generator().manual_seed(seed)
    n = len(groups)
    return Split(
        torch.randn(n, FEATURES, generator=draw, dtype=torch.float64),
        torch.randint(CLASSES, (n,), generator=draw),
        torch.tensor(groups, dtype=torch.int64),
    )


def network(*between: nn.Module, hidden: int = 3) -> nn.Module:
    """A small network in double precision, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Linear(FEATURES, hidden), nn.Tanh(), *between, nn.Linear(hidden, CLASSES)]
        return nn.Sequential(*layers).double()


def engine_of(model: nn.Module, name: str = "auto"):
    probe = made_up([0, 0], seed=9)
    return make_engine(name, model, cross_entropy, Batch(probe.inputs, probe.targets, probe.groups))


def private_step(method, model: nn.Module, lr: float = 0.5, physical: int | None = None):
    engine = engine_of(model)
    return PrivateStep(
        engine=engine,
        method=method,
        optimizer=torch.optim.SGD([engine.parameters.theta], lr=lr),
        noise_multiplier=1.0,
        expected_batch_size=8.0,
        physical_batch_size=physical,
        noise=torch.Generator().manual_seed(2),
        counts=torch.Generator().manual_seed(3),
    )


def explicit(engine, split: Split, group: int):
    """A group's mean loss, its gradient and its Hessian, all at once and at the present theta."""
    mask = split.groups == group

    def loss(theta):
        named = engine.parameters.unflatten(theta)
        outputs = torch.func.functional_call(engine.model, named, (split.inputs[mask],))
        return cross_entropy(outputs, split.targets[mask]).mean()

    theta = engine.parameters.theta.detach()
    return (
        loss(theta),
        torch.func.grad(loss)(theta),
        torch.func.jacrev(torch.func.jacrev(loss))(theta),
    )
