"""Clipping functions: each against its formula, and where they become one another."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpbench.step.clipping import (
    Abadi,
    Automatic,
    BatchClip,
    Global,
    Normalise,
    PerSampleAdaptive,
    Tanh,
    Unclipped,
    make_clip,
)
from dpbench.step.clipping.choice import BY_NORM, CLIPS

NORMS = torch.tensor([0.0, 1e-9, 0.25, 0.5, 2.0, 1e6], dtype=torch.float64)
lengths = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5)


def factors(clip, norms=NORMS):
    return clip.factors(norms, torch.zeros(len(norms), dtype=torch.long))


# Number by number, with R = 0.5 (Bu et al. 2022; Bu et al. 2023, calibration, 2.2).
FORMULAS = {
    "abadi": lambda n: min(1.0, 0.5 / n) if n else 1.0,
    "automatic": lambda n: 0.5 / (n + 0.01),
    "normalise": lambda n: 0.5 / n if n else 0.0,
    "global": lambda n: 1.0 if n <= 0.5 else 0.0,
    "psac": lambda n: 0.5 / (n + 0.1 / (n + 0.1)),  # Xia et al. 2023, Algorithm 1
    "tanh": lambda n: 0.5 * math.tanh(n / 0.5) / n if n else 1.0,  # Soleymani et al. 2025
    "none": lambda n: 1.0,
}


@pytest.mark.parametrize("name", [*BY_NORM, "none"])
def test_a_function_is_its_formula(name):
    expected = [FORMULAS[name](n) for n in NORMS.tolist()]
    assert factors(make_clip(name, "flat", 0.5)).tolist() == pytest.approx(expected)


def test_factors_that_float32_can_hardly_represent_are_0():
    found = factors(Abadi(1e-12), torch.tensor([1e17, 1e18, 1e19])).tolist()
    assert found == [pytest.approx(1e-29), pytest.approx(1e-30), 0]


def test_the_earlier_form_of_global_is_r_over_z_up_to_z_and_scaled_it_keeps_its_scale():
    assert factors(Global(0.5, 2.0)).tolist() == [0.25] * 5 + [0]
    scaled = Global(0.5, 2.0).scaled(3)
    assert (scaled.sensitivity.bound, scaled.strict_bound) == (1.5, 6.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_of_zero_or_nearly_so_adds_nothing_that_is_not_finite(dtype):
    norms = torch.tensor([0.0, torch.finfo(dtype).smallest_normal / 4, math.inf], dtype=dtype)
    for clip in (make(1e3) for make in BY_NORM.values()):
        assert factors(clip, norms)[:2].isfinite().all()
        assert (factors(clip, norms)[:2] * norms[:2] <= 1e3).all()


@given(lengths, st.floats(1e-3, 1e3))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_automatic_tends_to_normalise_and_stays_strictly_below_the_bound(norms, bound):
    norms = torch.tensor(norms, dtype=torch.float64)
    target = factors(Normalise(bound), norms)
    gaps = [target - factors(Automatic(bound, c), norms) for c in (1e-1, 1e-3, 1e-6, 1e-9)]
    assert all((wide > narrow).all() for wide, narrow in itertools.pairwise(gaps))
    assert torch.allclose(gaps[-1] / target, torch.zeros_like(norms), atol=2e-6)
    assert (factors(Automatic(bound, 0.01), norms) * norms < bound).all()


@given(lengths)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_a_bound_beyond_all_norms_clips_nothing(norms):
    norms = torch.tensor(norms, dtype=torch.float64)
    for clip in (Abadi(1e4), Global(1e4, 1e4)):
        assert torch.equal(factors(clip, norms), factors(Unclipped(), norms))


def test_batch_clipping_keeps_the_direction_and_one_example_moves_it_by_twice_the_bound():
    clip, total = BatchClip(0.5), torch.tensor([3.0, 4.0])
    assert factors(clip).tolist() == [1] * len(NORMS)
    assert clip.finish(total).tolist() == pytest.approx([0.3, 0.4])
    assert clip.finish(total / 100).tolist() == pytest.approx([0.03, 0.04])
    assert clip.finish(total * 0).tolist() == [0, 0]
    clip = BatchClip(0.5)
    rest, one = torch.tensor([7.0, 0.0]), torch.tensor([-20.0, 0.0])
    moved = (clip.finish(rest + one) - clip.finish(rest)).norm()
    assert moved == pytest.approx(2 * clip.sensitivity.bound)
    assert "twice the bound" in clip.sensitivity.caveat


@pytest.mark.slow
@given(lengths, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_per_sample_adaptive_and_tanh_stay_within_the_bound(norms, bound, regulariser):
    norms = torch.tensor(norms, dtype=torch.float64)
    for clip in (PerSampleAdaptive(bound, regulariser), Tanh(bound)):
        assert (factors(clip, norms) * norms <= bound * (1 + 1e-15)).all()


@pytest.mark.parametrize("regulariser", [0.01, 0.1, 0.5])
def test_the_factor_of_per_sample_adaptive_clipping_is_largest_where_it_says(regulariser):
    top = regulariser**0.5 - regulariser
    around = torch.tensor([0.0, 0.99 * top, top, 1.01 * top, 1e4], dtype=torch.float64)
    found = factors(PerSampleAdaptive(2.0, regulariser), around)
    assert found.argmax() == 2
    assert float(found[0]) == 2.0
    assert float(found[4] * 1e4) == pytest.approx(2.0)


@given(lengths, st.floats(1e-3, 1e3))
@example([365.875], 1.25)  # far from the bound both are R/norm, by other operations
@settings(derandomize=True, deadline=None, max_examples=50)
def test_tanh_is_below_abadi_and_equal_to_it_far_from_the_bound(norms, bound):
    norms = torch.tensor(norms, dtype=torch.float64)
    # R/norm of a number R and of a tensor: two roundings each, of 1.1e-16
    assert (factors(Tanh(bound), norms) <= factors(Abadi(bound), norms) * (1 + 1e-15)).all()
    far = torch.tensor([bound * 1e-5, bound * 1e5], dtype=torch.float64)
    assert torch.allclose(factors(Tanh(bound), far), factors(Abadi(bound), far))


@pytest.mark.parametrize("name", [name for name in CLIPS if name != "global"])
@given(lengths, st.floats(0.1, 10))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_a_scaled_clip_is_the_clip_with_that_bound(name, norms, by):
    norms = torch.tensor(norms, dtype=torch.float64)
    scaled, other = make_clip(name, "flat", 0.5).scaled(by), make_clip(name, "flat", 0.5 * by)
    assert scaled == other
    assert torch.equal(factors(scaled, norms), factors(other, norms))
