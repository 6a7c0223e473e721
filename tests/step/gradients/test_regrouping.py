"""One example less puts the others elsewhere in their batches, where float32 may round anew."""

import pytest
import torch
from hydra.utils import instantiate
from torch import nn
from torch.nn import functional as F

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.config.compose import compose
from dpbench.step.clipping import Abadi
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import Parameters


def labelled(inputs, classes):
    count = torch.arange(len(inputs))
    return Batch(inputs, count % classes, torch.zeros_like(count))


MODELS = {
    "logistic": (33, (100,)),
    "mlp": (33, (100,)),
    "cnn_tanh": (17, (1, 28, 28)),
    "sample_convnet": (17, (1, 28, 28)),
    "resnet9_w8": (5, (3, 32, 32)),
    "wrn16_4": (4, (3, 32, 32)),
    "vit_tiny": (4, (3, 32, 32)),
}
LONG = ("wrn16_4", "vit_tiny")
# Millions of ReLUs, of which one may have an input within rounding of zero.
LIMITS = {"wrn16_4": 2e-2}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long if n in LONG else pytest.mark.slow) for n in MODELS],
)
def test_regrouping_changes_a_gradient_by_little(name):
    examples, shape = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = instantiate(compose([f"model={name}"])["model"], _convert_="all").build(shape, 10)
        batch = labelled(torch.rand(examples, *shape), 10)
    engine = Ghost(model.eval(), cross_entropy, Parameters(model))
    whole = engine(batch).stack()
    for fewer in (1, 2, 3):
        part = engine(batch.each(lambda t, fewer=fewer: t[fewer:])).stack()
        change = (part - whole[fewer:]).norm(dim=1) / whole[fewer:].norm(dim=1)
        assert change.max() < LIMITS.get(name, 1e-5)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 3)
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        h = self.table(x)
        return self.head(F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h)).mean(1))


@pytest.mark.parametrize("size", [None, 2, 4])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_rounding_in_the_reference_does_not_depend_on_the_batch(scale, size):
    model, draw = Attention(), torch.Generator().manual_seed(0)
    engine = Loop(model, cross_entropy, Parameters(model))
    theta = engine.parameters.theta.data
    theta.copy_(torch.randn(theta.shape, generator=draw) * scale)
    batch = labelled(torch.randint(0, 11, (9, 5), generator=draw), 3)

    def total(part):
        groups = (engine(own) for own in part.split(size or len(part)))
        return sum(g.weighted_sum(Abadi(1.0).factors(g.norms, None)) for g in groups)

    for without in range(9):
        rest = batch.each(lambda t, i=without: t[torch.arange(9) != i])
        assert (total(batch) - total(rest)).norm() <= 1 + 1e-9
