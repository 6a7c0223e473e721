"""Layerwise clipping: each layer alone, and all of them one vector with one sensitivity."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.training.accounting import statement
from dpbench.step.clipping import Layerwise, make_clip
from dpbench.step.clipping.choice import BY_NORM
from dpbench.step.gradients import Layer
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.mechanism.step import finite_factors
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError
from tests.problems import problem

SPLIT = (Layer("a", slice(0, 2)), Layer("b", slice(2, 3)), Layer("c", slice(3, 7)))
WHOLE = (Layer("all", slice(0, 7)),)


def rows(seed: int, n: int = 5) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 7, dtype=torch.float64, generator=draw)


def clipped_sum(clip, rows, layers):
    batch, nobody = (
        MaterialisedGradients(rows[:, 0], rows, layers),
        torch.zeros(len(rows), dtype=torch.long),
    )
    return clip.reduce(batch, clip.factors(clip.norms(batch), nobody))


@pytest.mark.parametrize("name", BY_NORM)
@pytest.mark.parametrize("bounds", [1.5, [0.5, 1.0, 0.25]])
@given(st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_each_layer_is_clipped_as_if_it_were_a_model_of_its_own(name, bounds, seed):
    r, each = rows(seed), bounds if isinstance(bounds, list) else [bounds / 3**0.5] * 3
    parts = [
        clipped_sum(make_clip(name, "flat", bound), r[:, layer.at], [Layer("it", slice(None))])
        for bound, layer in zip(each, SPLIT, strict=True)
    ]
    ours = clipped_sum(make_clip(name, "layerwise", bounds), r, SPLIT)
    assert torch.allclose(ours, torch.cat(parts), rtol=1e-12)


@pytest.mark.parametrize("name", BY_NORM)
@pytest.mark.parametrize("bound", [0.7, [0.7]])
def test_layerwise_with_one_layer_is_flat(name, bound):
    flat, layerwise = make_clip(name, "flat", 0.7), make_clip(name, "layerwise", bound)
    assert layerwise.sensitivity.bound == flat.sensitivity.bound
    for seed in range(5):
        ours, reference = (clipped_sum(c, rows(seed), WHOLE) for c in (layerwise, flat))
        assert torch.allclose(ours, reference, rtol=1e-12)


def test_one_bound_is_that_of_the_whole_and_a_list_adds_up_by_squares_at_other_bounds_too():
    assert make_clip("abadi", "layerwise", 2.0).sensitivity.bound == 2.0
    assert make_clip("abadi", "layerwise", [3.0, 4.0]).sensitivity.bound == pytest.approx(5)
    shared = make_clip("abadi", "layerwise", 2.0).bounds_of(torch.zeros(4))
    assert shared.tolist() == pytest.approx([1.0] * 4)
    own = make_clip("abadi", "layerwise", [3.0, 4.0]).bounds_of(torch.zeros(2))
    assert own.tolist() == pytest.approx([3.0, 4.0])
    clip = Layerwise(make_clip("abadi", "flat", 1.0)).at(torch.tensor([3.0, 4.0]))
    assert float(clip.sensitivity.bound) == pytest.approx(5)
    assert clip.scaled(2).bounds_of(torch.zeros(2)).tolist() == pytest.approx([6.0, 8.0])


def test_noise_of_a_step_has_the_scale_of_the_composed_sensitivity(step_of, batch_of, variance_p):
    step = step_of(dpsgd([0.3, 0.4], "corrected", style="layerwise"), multiplier=2.0, expected=1)
    step(batch_of(0))
    noise = step.engine.parameters.theta.grad
    assert variance_p(noise, 2.0 * 0.5) > 1e-3
    assert variance_p(noise, 2.0 * 0.7) < 1e-6  # the sum of the bounds


def test_large_bounds_in_layers_clip_nothing(step_of, batch_of):
    ends = []
    for method in (dpsgd(1e9, "corrected", style="layerwise"), dpsgd(1.0, "corrected", "none")):
        step = step_of(method, multiplier=0.0)
        step(batch_of(6))
        ends.append(step.engine.parameters.theta.detach())
    assert torch.allclose(*ends, rtol=1e-12)


def test_an_example_that_is_not_finite_in_one_layer_is_left_out_of_all():
    r = rows(0)
    r[2, 6] = math.inf
    batch = MaterialisedGradients(r[:, 0], r, SPLIT)
    assert batch.layer_norms[2].isfinite().tolist() == [True, True, False]
    clip = make_clip("abadi", "layerwise", 1.0)
    factors, finite = finite_factors(clip, clip.norms(batch), torch.zeros(5, dtype=torch.long))
    assert finite.tolist() == [True, True, False, True, True]
    kept = clipped_sum(clip, torch.cat([r[:2], r[3:]]), SPLIT)
    assert torch.allclose(clip.reduce(batch, factors), kept, rtol=1e-12)


def test_bounds_for_other_layers_than_the_model_s_are_refused_by_name():
    with pytest.raises(
        UserError, match=r"has 2 numbers and the model 3 trained layers \(a, b, c\)"
    ):
        make_clip("abadi", "layerwise", [1.0, 2.0]).bind(problem(layers=tuple("abc")))
    make_clip("abadi", "layerwise", [1.0, 2.0]).bind(problem(layers=tuple("ab")))
    make_clip("abadi", "layerwise", 1.0).bind(problem(layers=tuple("abc")))


BOUNDS = [0.5, 1.5]


def apart(bound=BOUNDS):
    return dpsgd(bound, "paper", style="layerwise").bind(problem())


@pytest.mark.parametrize("bound", [BOUNDS, 2.0])
def test_as_published_each_layer_has_noise_of_its_own_bound(step_of, batch_of, variance_p, bound):
    step, bare = step_of(apart(bound), multiplier=0.8), step_of(apart(bound), multiplier=1e-12)
    each = bound if isinstance(bound, list) else [bound / 2**0.5] * 2
    noise = []
    for one in (step, bare):
        one.expected_batch_size = 1.0
    for seed in range(20):
        batch = batch_of(4, seed=seed)
        for one in (step, bare):
            one.optimizer.param_groups[0]["lr"] = 0.0
            one(batch)
        noise.append(step.engine.parameters.theta.grad - bare.engine.parameters.theta.grad)
    drawn = torch.stack(noise)
    for layer, r in zip(step.engine.parameters.layers, each, strict=True):
        assert variance_p(drawn[:, layer.at], 0.8 * r) > 1e-3
        assert variance_p(drawn[:, layer.at], 0.8 * r * 2 / 3) < 1e-6
        assert variance_p(drawn[:, layer.at], 0.8 * r * 3 / 2) < 1e-6


@pytest.mark.slow
def test_as_published_the_account_has_sigma_over_the_root_of_the_layers():
    (release,) = apart().releases(1.2)
    assert release.mechanism.noise_multiplier == pytest.approx(1.2 / 2**0.5)
    assert release.claimed == GaussianMechanism(1.2)
    book = Ledger().after(Step(Poisson(0.05), (release,)), 100)
    says = statement(book, apart(), 1e-5, 1.2)
    assert says["guarantee"] == "proven"
    assert "sigma/sqrt(L)" in says["why"]
    # What two releases from one batch cost, each of one layer.
    two = tuple(Release(f"layer {r}", GaussianMechanism(1.2)) for r in range(2))
    assert says["pld"] == pytest.approx(pld(Ledger().after(Step(Poisson(0.05), two), 100), 1e-5))
    assert says["claimed"] == rdp(Ledger().after(Step(Poisson(0.05), two[:1]), 100), 1e-5)


def test_as_published_a_long_example_moves_every_layer_by_its_bound(step_of, batch_of):
    step, batch = step_of(apart(), multiplier=1e-12, lr=0.0, expected=1.0), batch_of(1)
    batch.inputs.mul_(1e3)
    step(batch)
    moved = step.engine.parameters.theta.grad
    lengths = [float(moved[layer.at].norm()) for layer in step.engine.parameters.layers]
    assert lengths == pytest.approx(BOUNDS)


def test_with_one_layer_the_published_account_is_the_corrected_one_and_layers_need_their_number():
    (ours,) = dpsgd([0.7], "paper", style="layerwise").bind(problem(layers=("it",))).releases(1.2)
    (flat,) = dpsgd(0.7, "corrected").releases(1.2)
    assert ours == flat
    with pytest.raises(UserError, match="call bind"):
        dpsgd(BOUNDS, "paper", style="layerwise").releases(1.0)
