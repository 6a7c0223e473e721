"""Engines whose models compute in fewer bits: the norms are those of what is summed."""

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.standardised import StandardisedConv2d
from dpbench.step.gradients import ForwardOptions, make_engine
from dpbench.step.gradients.engine import PerExampleShift
from dpbench.step.gradients.precision import Precision
from dpbench.system.errors import UserError

BITS = {"float32": 1e-5, "tf32": 1e-5, "bf16": 0.1}
"""How far a gradient may be from that of the float32 model, relative to its norm."""


class Tokens(nn.Module):
    """Attention over patches and a class token, which is a bare parameter."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.patches = nn.Conv2d(3, 8, 2, 2)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1).to(x.dtype), x], 1)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return self.out((x + (q @ k.mT / 8**0.5).softmax(-1) @ v)[:, 0])


MODELS = {
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(),
        StandardisedConv2d(8, 16, 3, 1, 1, True), nn.GroupNorm(4, 16), nn.Tanh(),
        nn.Conv2d(16, 4, 3, groups=2), nn.Flatten(), nn.Linear(4 * 16, 5),
    ),
    "tokens": Tokens,
    "fallback": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ELU(), nn.ConvTranspose2d(8, 4, 2), nn.Flatten(),
        nn.Linear(4 * 49, 5),
    ),
}  # fmt: skip


def batch_of(n: int) -> Batch:
    draw = torch.Generator().manual_seed(n)
    inputs = torch.randn(n, 3, 8, 8, generator=draw) * torch.logspace(-1, 1, n).view(-1, 1, 1, 1)
    return Batch(inputs, torch.arange(n) % 5, torch.zeros(n, dtype=torch.int64))


def engine_of(model: str, engine: str, precision: str, channels_last: bool = False):
    options = ForwardOptions(Precision(precision), channels_last)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = make_engine(engine, MODELS[model](), cross_entropy, batch_of(2), options=options)
    assert made.name == engine or engine == "auto"
    return made


def kinds(engine, batch):
    """Gradients at theta, a common step from it, and a step of each example's own."""
    here = engine(batch)
    yield here
    yield engine(batch, torch.full_like(engine.parameters.theta, 0.01))
    yield engine(batch, PerExampleShift(here, 0.1 / here.norms))


def skip_what_torch_cannot(model: str, engine: str, precision: str) -> None:
    if (model, engine, precision) == ("tokens", "vmap", "bf16"):
        pytest.skip("on a CPU, torch cannot differentiate layer normalisation in two precisions")


@pytest.mark.sampled(9)
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("engine", ["auto", "vmap"])
@pytest.mark.parametrize("model", MODELS)
def test_a_norm_is_never_shorter_than_what_is_summed(model, engine, precision):
    skip_what_torch_cannot(model, engine, precision)
    for gradients in kinds(engine_of(model, engine, precision), batch_of(6)):
        norms, alone = gradients.norms, torch.eye(6)
        summed = torch.stack([gradients.weighted_sum(one) for one in alone]).double()
        assert norms.dtype == gradients.losses.dtype == torch.float32
        assert (norms >= (1 - 1e-5) * summed.norm(dim=1)).all()
        assert torch.allclose(norms.double(), summed.norm(dim=1), rtol=1e-3)
        assert torch.allclose(gradients.stack().double(), summed, rtol=1e-3, atol=1e-4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("engine", ["auto", "vmap"])
@pytest.mark.parametrize("model", MODELS)
def test_fewer_bits_make_nearly_the_same_gradients(model, engine, precision):
    skip_what_torch_cannot(model, engine, precision)
    batch = batch_of(6)
    exact = engine_of(model, engine, "float32")(batch).stack()
    ours = engine_of(model, engine, precision)(batch).stack()
    error = (ours - exact).norm(dim=1) / exact.norm(dim=1)
    assert error.max() < BITS[precision]
    if precision == "bf16":
        assert error.max() > 1e-4, "nothing was rounded"


@pytest.mark.parametrize("engine", ["auto", "vmap"])
def test_gradients_are_per_example_in_low_precision_too(engine):
    batch, made = batch_of(6), engine_of("convolutions", engine, "bf16")
    whole = made(batch).stack()
    for i in range(6):
        alone = made(batch.each(lambda t, i=i: t[i : i + 1])).stack()
        assert torch.allclose(alone[0], whole[i], rtol=0.05, atol=0.05 * float(whole[i].norm()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["auto", "vmap"])
@pytest.mark.parametrize("model", MODELS)
def test_the_order_of_memory_changes_no_gradient(model, engine):
    batch = batch_of(6)
    usual, other = (engine_of(model, engine, "float32", last) for last in (False, True))
    for ours, theirs in zip(kinds(other, batch), kinds(usual, batch), strict=True):
        assert torch.allclose(ours.stack(), theirs.stack(), rtol=1e-4, atol=1e-5)
        assert torch.allclose(ours.norms, theirs.norms, rtol=1e-5)


def test_convolutions_see_channels_last_and_pass_it_on():
    made, seen = engine_of("convolutions", "ghost", "float32", channels_last=True), []
    for module in made.model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, inputs, output: seen.extend([*inputs, output]))
    made(batch_of(6))
    assert seen
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in seen)


def test_the_reference_knows_no_other_way_and_precisions_may_be_lacking():
    with pytest.raises(UserError, match="engine=loop is the float64 reference"):
        engine_of("convolutions", "loop", "bf16")
    with pytest.raises(UserError, match="fails with engine=vmap and this model"):
        engine_of("tokens", "vmap", "bf16")
