"""Sums in TF32: what one example adds is never longer than the stated sensitivity either."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.clipping import make_clip
from dpbench.step.gradients import ForwardOptions, make_engine
from dpbench.step.gradients.layers import patches
from dpbench.step.gradients.layers.rules import rule_of
from dpbench.step.gradients.precision import Precision
from dpbench.step.gradients.products import Products
from dpbench.step.mechanism.step import finite_factors
from dpbench.system.errors import UserError
from tests.step.gradients.tensor_core import TensorCore, product
from tests.step.gradients.test_options import MODELS, batch_of, kinds
from tests.step.gradients.test_sensitivity import (
    EXAMPLES,
    ROUNDING,
    RULES,
    assert_no_example_exceeds,
    broken,
    passed,
)

TF32 = Products("tf32")

MULTIPLIED = [
    name for name, (make, _, _) in RULES.items() if (rule := rule_of(make())) and rule.multiplied
]


def test_an_operand_has_eleven_bits_and_is_no_larger():
    x = broken(torch.Generator().manual_seed(0), (EXAMPLES, 500))
    cut = TF32.operand(x)
    normal = x.abs() >= torch.finfo(x.dtype).smallest_normal
    mantissa, _ = cut[normal].double().frexp()
    assert torch.equal((mantissa * 2**11).trunc(), mantissa * 2**11)
    assert (cut.abs() <= x.abs()).all()
    assert ((x - cut).abs() <= TF32.cut * x.abs())[normal].all()
    assert ((x - cut).abs() > TF32.cut * x.abs() / 2)[normal].any()


def test_what_is_not_finite_stays_so_and_other_numbers_are_as_they_were():
    signalling = torch.tensor([0x7F800001, -1]).to(torch.int32).view(torch.float32)
    assert not TF32.operand(torch.cat([signalling, torch.tensor([torch.inf])])).isfinite().any()
    for x in (torch.rand(3).double(), torch.arange(3)):
        assert TF32.operand(x) is x


@pytest.fixture(params=["cpu", "gpu"])
def branches(request, monkeypatch):
    """The branches that a device takes."""
    if request.param == "gpu":
        monkeypatch.setattr(patches, "GROUPED", ())


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("rule", MULTIPLIED)
@pytest.mark.usefixtures("branches")
def test_one_example_adds_no_more_than_the_sensitivity(rule):
    assert_no_example_exceeds(rule, 0, TF32)


@pytest.mark.long
@pytest.mark.parametrize("rule", MULTIPLIED)
@given(st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=15)
def test_a_long_search_finds_no_example_that_adds_more(rule, seed):
    assert_no_example_exceeds(rule, seed, TF32)


# Positions that all but cancel: their adjoints are cut after the factor is multiplied into them.


def farthest_of_cancelling(positions: int, products: Products, module: nn.Module) -> float:
    """How far an example of these moves a sum of its own, as a multiple of the bound."""
    draw = torch.Generator().manual_seed(positions)
    signs = torch.tensor([1.0, -1.0]).repeat(positions)[:positions].view(-1, 1)
    a, b = (1 + torch.rand(2, 300, positions, 1, generator=draw)).unbind()
    a, b = (x.expand(-1, -1, module.in_features) for x in (a, b * signs))
    clip = make_clip("abadi", "flat", 0.01)
    gradients = passed(module, a, b, 1, products)
    factors, _ = finite_factors(clip, clip.norms(gradients), torch.zeros(len(b)).long())
    sums = [gradients.weighted_sum(factors * one) for one in torch.eye(len(b))]
    return torch.stack(sums).double().norm(dim=1).max().item() / 0.01


@pytest.mark.parametrize("positions", [2, 3, 4])
def test_positions_that_cancel_are_no_longer_after_a_cut(positions, monkeypatch):
    module = nn.Linear(16, 16, bias=False)  # by inner products of positions
    assert 0.9 < farthest_of_cancelling(positions, TF32, module) <= 1 + ROUNDING
    monkeypatch.setattr(Products, "cut", 0.0)
    assert farthest_of_cancelling(positions, TF32, module) > 1 + 100 * ROUNDING


# As a tensor core adds up.


@pytest.mark.parametrize("terms", [3, 8, 50, 400])
def test_a_tensor_core_s_sums_are_as_close_as_we_say(terms):
    draw = torch.Generator().manual_seed(terms)
    x, y = (TF32.operand(broken(draw, (EXAMPLES, 1, terms)).clamp(-1e9, 1e9)) for _ in range(2))
    exact = (x.double() * y.double()).sum((1, 2))
    sizes = (x.double() * y.double()).abs().sum((1, 2))
    error = (product(x, y.mT).double().flatten() - exact).abs()
    assert (error <= TF32.roundings * terms * 2.0**-24 * sizes + terms * 2.0**-149).all()
    assert (error > 2.0**-24 * sizes).any()


def farthest_by_tensor_core(rule: str, monkeypatch) -> float:
    """How far an example moves a sum of its own that a tensor core takes, in bounds."""
    monkeypatch.setattr(patches, "GROUPED", ())
    monkeypatch.setattr(Products, "taken", lambda products, x: TensorCore())
    make, shape, views = RULES[rule]
    module, draw, clip = make(), torch.Generator().manual_seed(0), make_clip("abadi", "flat", 1.0)
    with torch.no_grad():
        a = broken(draw, (EXAMPLES, *shape))
        b, sums = broken(draw, tuple(module(a).shape)), []
        for x, y in zip(a.split(views), b.split(views), strict=True):
            gradients = passed(module, x, y, views, TF32)
            factors, _ = finite_factors(clip, clip.norms(gradients), torch.zeros(1).long())
            sums.append(gradients.weighted_sum(factors))
    return torch.stack(sums).double().norm(dim=1).max().item()


BY_TENSOR_CORE = ["dyad", "outer, Gram", "outer, rows", "convolution, Gram"]


@pytest.mark.parametrize("rule", BY_TENSOR_CORE)
def test_one_example_adds_no_more_by_a_tensor_core(rule, monkeypatch):
    assert 0.9 < farthest_by_tensor_core(rule, monkeypatch) <= 1 + ROUNDING


def test_operands_that_are_not_cut_beforehand_would_add_more(monkeypatch):
    monkeypatch.setattr(Products, "operand", lambda products, x: x)
    assert farthest_by_tensor_core("dyad", monkeypatch) > 1 + 100 * ROUNDING


# Whole models.


def engine_of(model: str, precision: str, products: Products, engine: str = "ghost"):
    options = ForwardOptions(Precision(precision), products=products)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_engine(engine, MODELS[model](), cross_entropy, batch_of(2), options=options)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("model", ["convolutions", "tokens"])
def test_a_model_s_norms_and_sums_are_of_what_was_cut(model, precision):
    engine, batch, alone = engine_of(model, precision, TF32), batch_of(6), torch.eye(6)
    for gradients in kinds(engine, batch):
        summed = torch.stack([gradients.weighted_sum(one) for one in alone]).double()
        norms = gradients.norms.double()
        assert (norms >= (1 - 1e-6) * summed.norm(dim=1)).all()
        layers = [layer for part in gradients.by_module.values() for layer in part.gradients]
        products = [layer for layer in layers if hasattr(layer, "products")]
        assert any(layer.products.short for layer in products)
        for layer in products:
            assert all(torch.equal(layer.products.operand(x), x) for x in (layer.a, layer.b))
        assert torch.allclose(norms, summed.norm(dim=1), rtol=0.01)
        assert torch.allclose(gradients.stack().double(), summed, rtol=1e-2, atol=1e-3)
    exact = engine_of(model, precision, Products())(batch).stack()
    error = (engine(batch).stack() - exact).norm(dim=1) / exact.norm(dim=1)
    assert 1e-6 < error.max() < 2e-3


def test_engines_without_products_refuse_to_take_them_in_tf32():
    for engine in ("vmap", "loop"):
        with pytest.raises(UserError, match=f"sums=tf32.*engine={engine}"):
            engine_of("convolutions", "float32", TF32, engine)
