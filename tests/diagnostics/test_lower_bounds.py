import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from quadratics import Quadratic, quadratics

from dpbench.diagnostics import excess_risk, lower_bounds

SLACK = 1e-9


def gap(term, x):
    values = term(x)
    return values[0] - values[1]


def rest_of(q, shares, full):
    return torch.linalg.vector_norm(full - shares[0] * q.gradients[0] - shares[1] * q.gradients[1])


@settings(deadline=None, max_examples=300)
@given(quadratics(convex=True))
def test_direction_bound_is_below_the_gap(q):
    x = q.expansion()
    assert lower_bounds.direction_gap_bound(x) <= gap(excess_risk.direction_risk, x) + SLACK


@given(st.floats(0.01, 1), st.floats(0.1, 3))
def test_direction_bound_can_be_attained(learning_rate, length):
    """Group a curves along the plain gradient alone, group b along the clipped one alone."""
    e = torch.eye(2, dtype=torch.float64)
    hessians = torch.stack([e[0].diag(), e[1].diag()]) / learning_rate
    x = Quadratic(e, hessians, e[0], length * e[1], learning_rate).expansion()
    torch.testing.assert_close(
        lower_bounds.direction_gap_bound(x), gap(excess_risk.direction_risk, x)
    )


def test_direction_bound_needs_its_learning_rate():
    e = torch.eye(2, dtype=torch.float64)
    hessians = 2 * torch.stack([e[0].diag(), e[1].diag()])
    x = Quadratic(e, hessians, e[0], e[1], 1.0).expansion()
    assert lower_bounds.direction_gap_bound(x) > gap(excess_risk.direction_risk, x)


@settings(deadline=None, max_examples=300)
@given(quadratics(convex=True, groups=3), st.floats(0, 1), st.floats(0, 1))
def test_clipping_bound_is_below_the_gap_of_the_full_gradient(q, first, second):
    assume(first + second <= 1)
    shares = torch.tensor([first, second, 1 - first - second], dtype=torch.float64)
    full = shares @ q.gradients
    assume(torch.linalg.vector_norm(full) > 1e-6)
    x = q._replace(plain=full).expansion()
    bound = lower_bounds.clipping_gap_bound(_first_two(x), shares[:2], rest_of(q, shares, full))
    assert bound <= gap(excess_risk.clipping_risk, x) + SLACK


@settings(deadline=None, max_examples=300)
@given(quadratics(convex=True), st.floats(0, 1))
def test_clipping_bound_of_a_batch_is_off_by_how_far_its_gradient_is(q, first):
    shares = torch.tensor([first, 1 - first], dtype=torch.float64)
    full = shares @ q.gradients
    x = q.expansion()
    off = q.learning_rate * (q.gradients[0] - q.gradients[1]) @ (q.plain - full)
    bound = lower_bounds.clipping_gap_bound(x, shares, 0.0)
    assert bound + off <= gap(excess_risk.clipping_risk, x) + SLACK


def _first_two(x):
    return x._replace(norm_group=x.norm_group[:2])
