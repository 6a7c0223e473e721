import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpbench.runs.diagnostics import excess_risk
from dpbench.runs.diagnostics.excess_risk import Expansion

SLACK = 1e-9
seeds = st.integers(0, 10**6)


def gap(term, x):
    values = term(x)
    return values[0] - values[1]


def rest_of(q, shares, full):
    return torch.linalg.vector_norm(full - shares[0] * q.gradients[0] - shares[1] * q.gradients[1])


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(seeds)
def test_both_direction_bounds_are_below_the_gap(quadratic, seed):
    x = quadratic(seed, convex=True).expansion
    assert excess_risk.direction_gap_bound(x) <= gap(excess_risk.direction_risk, x) + SLACK
    x = quadratic(seed, convex=True).expansion
    bound = excess_risk.direction_gap_bound_starred(x)
    assert bound <= gap(excess_risk.direction_risk_starred, x) + SLACK * (1 + abs(bound))


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 1), st.floats(0.1, 3))
def test_starred_direction_bound_needs_the_square_that_equation_18_leaves_out(lr, length):
    """Curvatures as where Proposition 3 is attained, with |g| = length and c along its own axis."""
    x = Expansion(
        learning_rate=lr,
        norm_plain=torch.tensor(length),
        norm_clipped=torch.tensor(1.0),
        norm_group=torch.ones(2),
        dot_plain=torch.tensor([length, 0.0]),
        dot_clipped=torch.tensor([0.0, 1.0]),
        curvature_plain=torch.tensor([length**2 / lr, 0.0]),
        curvature_clipped=torch.tensor([0.0, 1 / lr]),
    )
    attained = gap(excess_risk.direction_risk_starred, x)
    torch.testing.assert_close(attained, excess_risk.direction_gap_bound_starred(x))
    as_printed = excess_risk.direction_gap_bound_starred(x) + lr * (length**2 - length)
    assert (as_printed > attained + 1e-6) == (lr * length * (length - 1) > 1e-6)


@settings(deadline=None, max_examples=200)
@given(st.floats(0.01, 1), st.floats(0.1, 3))
def test_direction_bound_is_attained_up_to_its_learning_rate_and_not_beyond(lr, length):
    """Group a curves along the plain gradient alone, group b along the clipped one alone."""
    x = Expansion(
        learning_rate=lr,
        norm_plain=torch.tensor(1.0),
        norm_clipped=torch.tensor(length),
        norm_group=torch.ones(2),
        dot_plain=torch.tensor([1.0, 0.0]),
        dot_clipped=torch.tensor([0.0, length]),
        curvature_plain=torch.tensor([1 / lr, 0.0]),
        curvature_clipped=torch.tensor([0.0, length**2 / lr]),
    )
    attained = excess_risk.direction_gap_bound(x)
    torch.testing.assert_close(gap(excess_risk.direction_risk, x), attained)
    beyond = x._replace(learning_rate=1.1 * lr)
    assert gap(excess_risk.direction_risk, beyond) < excess_risk.direction_gap_bound(beyond)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(seeds, st.floats(0, 1), st.floats(0, 1))
def test_clipping_bound_is_below_the_gap_of_the_full_gradient(quadratic, seed, first, second):
    q = quadratic(seed, convex=True, groups=3)
    assume(first + second <= 1)
    shares = torch.tensor([first, second, 1 - first - second], dtype=torch.float64)
    full = shares @ q.gradients
    assume(torch.linalg.vector_norm(full) > 1e-6)
    x = q._replace(plain=full).expansion
    bound = excess_risk.clipping_gap_bound(_first_two(x), shares[:2], rest_of(q, shares, full))
    assert bound <= gap(excess_risk.clipping_risk, x) + SLACK


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(seeds, st.floats(0, 1))
def test_clipping_bound_of_a_batch_is_off_by_how_far_its_gradient_is(quadratic, seed, first):
    q = quadratic(seed, convex=True)
    shares = torch.tensor([first, 1 - first], dtype=torch.float64)
    full = shares @ q.gradients
    x = q.expansion
    off = q.learning_rate * (q.gradients[0] - q.gradients[1]) @ (q.plain - full)
    bound = excess_risk.clipping_gap_bound(x, shares, 0.0)
    assert bound + off <= gap(excess_risk.clipping_risk, x) + SLACK


def _first_two(x):
    return x._replace(norm_group=x.norm_group[:2])
