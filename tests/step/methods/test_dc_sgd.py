"""DC-SGD: its histogram and its choice of a bound beside a slow reference."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.step.clipping import CountQuery
from dpbench.step.methods.dc_sgd import LeastError, dc_sgd
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError
from tests.problems import problem

GROUPS = torch.zeros(1, dtype=torch.long)


def clip(bound=1.0, bins=4, most=8.0, ratio=10.0):
    return LeastError(bound, bins, most, CountQuery(ratio, before=False, relative=True))


def histogram(made, *norms):
    return made.counts(torch.tensor(norms), GROUPS).tolist()


def test_norms_are_counted_by_bins_of_equal_width_and_those_that_are_not_finite_in_none():
    assert histogram(clip(), 0.0, 1.9, 2.0, 5.0, 7.9, 8.0, 1e9) == [2, 1, 1, 3]
    assert histogram(clip(), math.nan, math.inf, -math.inf) == [0] * 4


def chosen(made, counts, multiplier, expected):
    return float(made.at_noise(multiplier).updated(counts, expected).sensitivity.bound)


answers = st.lists(st.floats(-20, 200), min_size=1, max_size=12)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(answers, st.floats(0.1, 30), st.floats(0.3, 5), st.floats(1, 500), st.integers(1, 10**6))
def test_the_bound_is_the_end_of_a_bin_with_the_least_error(answer, most, sigma, expected, size):
    bins, counts = len(answer), torch.tensor(answer, dtype=torch.float64)
    made = clip(bins=bins, most=most).bind(problem(size=size))
    errors = {}
    for one in range(1, bins + 1):
        end, full = one * most / bins, [max(count, 0) for count in answer]
        centres = [(k + 0.5) * most / bins for k in range(bins)]
        lost = sum(n * max(c - end, 0) ** 2 for n, c in zip(full, centres, strict=True))
        noise = sigma**2 * end**2 * size / expected**2
        errors[end] = noise + lost / max(sum(full), 1e-8)
    ours = chosen(made, counts, sigma, expected)
    nearest = min(errors, key=lambda end: abs(end - ours))
    assert ours == pytest.approx(nearest)
    assert errors[nearest] <= min(errors.values()) * (1 + 1e-9) + 1e-12


def test_more_noise_lowers_the_bound_and_larger_norms_raise_it():
    made = clip(bins=20, most=10.0).bind(problem(size=1000))
    norms = torch.linspace(0, 5, 200)
    few = [chosen(made, made.counts(norms, GROUPS).double(), s, 64.0) for s in (0.1, 1.0, 10.0)]
    assert few == sorted(few, reverse=True)
    assert few[0] > few[-1]
    larger = chosen(made, made.counts(2 * norms, GROUPS).double(), 1.0, 64.0)
    assert larger > few[1]


def test_a_single_bin_is_dpsgd(batch_of):
    made, norms = clip(0.7, bins=1, most=0.7), torch.tensor([0.1, 0.7, 30.0])
    usual = dpsgd(0.7, "corrected").clip
    moved = made.at_noise(3.0).updated(made.counts(norms, GROUPS), 8.0)
    for one in (made, moved):
        assert torch.allclose(one.factors(norms, GROUPS), usual.factors(norms, GROUPS))
        assert float(one.sensitivity.bound) == pytest.approx(0.7)


def test_a_step_tells_the_clip_its_noise(step_of, batch_of):
    step = step_of(dc_sgd(1.0, 16, 4.0, 5.0))
    step(batch_of(8))
    assert step._clip.noise_multiplier == step.noise_multiplier > 0
    assert float(step._clip.bound) in [pytest.approx(k / 4) for k in range(1, 17)]


def test_the_histogram_is_released_with_the_sum():
    method = dc_sgd(1.0, 16, 4.0, 2.0).bind(problem())

    def epsilon(of, multiplier):
        return pld(Ledger().after(Step(Poisson(0.02), of.releases(multiplier)), 300), 1e-5)

    joint = (1.3**-2 + (2 * 1.3) ** -2) ** -0.5
    usual = dpsgd(1.0, "corrected").bind(problem())
    assert epsilon(method, 1.3) == pytest.approx(epsilon(usual, joint), rel=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"bins": 0}, {"most": 0}, {"most": 1e-12}, {"bound": -1}, {"ratio": 0}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=r"bins|most|bound|noise multiplier"):
        clip(**wrong)
