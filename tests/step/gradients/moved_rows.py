"""Models whose parts may move rows, and whether an engine for one holds its sensitivity."""

import warnings
from dataclasses import replace

import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.clipping import Abadi
from dpbench.step.gradients import EngineFallback, make_engine
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.rows.dispatch import DispatchMode
from dpbench.system.errors import UserError
from tests.step.gradients.forwards import WIDTH, as_it_is

SIZES = (3, 7, 24)


def labelled(x):
    return Batch(x, torch.arange(len(x)) % 3, torch.zeros(len(x), dtype=torch.long))


def examples(n, seed, scale=1.0):
    return labelled(torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed)) * scale)


class Composed(nn.Module):
    """Layers of one width, each called in its own way, in training mode alone or always."""

    def __init__(self, parts, training_only):
        super().__init__()
        self.parts, self.training_only = parts, training_only
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in parts)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = x
        for part, layer in zip(self.parts, self.layers, strict=True):
            part = part if self.training or not self.training_only else as_it_is
            h = torch.tanh(part(layer, h, x))
        return self.head(h)


def seeded(make, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def sensitivity(engine, batch):
    """The largest change of the clipped sum by removing one example, with bound 1."""

    def total(part):
        gradients = engine(part)
        return gradients.weighted_sum(Abadi(1.0).factors(gradients.norms, part.groups))

    full, n = total(batch), len(batch)
    kept = [torch.arange(n) != i for i in range(n)]
    parts = [batch.each(lambda t, keep=keep: t[keep]) for keep in kept]
    return max(float((full - total(part)).norm()) for part in parts)


def typed(batch, model):
    """The batch in the precision of the model."""
    return replace(batch, inputs=batch.inputs.to(model.head.weight.dtype))


def holds(model, name, scale, n=24, one_large=False):
    """Whether an engine for the model is refused, or its sensitivity and its rows are right.

    one_large: whether a single example has values above 4.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineFallback)
        try:
            engine = make_engine(name, model, cross_entropy, typed(examples(2, 0), model))
            with torch.no_grad():
                engine.parameters.theta.mul_(4)
            batch = typed(examples(n, 1, scale), model)
            reference = Loop(model, cross_entropy, engine.parameters)
            if one_large:
                batch.inputs.clamp_(-3, 3)[0, 0] = 5
            for training in (True, False):
                model.train(training)
                assert sensitivity(engine, batch) <= 1 + 1e-5
                ours, right = engine(batch).stack().double(), reference(batch).stack()
                atol = 1e-4 * float(right.norm(dim=1).max())
                assert torch.allclose(ours, right, rtol=1e-3, atol=atol)
        except UserError:
            return None
    return engine.name


def batch_for(model, shape, n, seed=0):
    draw = torch.Generator().manual_seed(seed)
    if any(isinstance(module, nn.Embedding) for module in model.modules()):
        return labelled(torch.randint(0, 9, (n, *shape), generator=draw))
    return labelled(torch.randn(n, *shape, generator=draw, dtype=torch.float64))


def right(engine, batch):
    """Whether each gradient is that of the example alone."""
    expected = Loop(engine.model, engine.loss, engine.parameters)(batch).stack()
    return torch.allclose(engine(batch).stack().double(), expected, 1e-4, 1e-6)


class Recorded(DispatchMode):
    """Within the context, records the names of operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket)
        return func(*args, **(kwargs or {}))
