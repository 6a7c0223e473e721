import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.runs.diagnostics.curvature import largest_eigenvalue, trace


def times(matrix):
    return lambda vectors: vectors @ matrix.T


def symmetric(eigenvalues, seed):
    draw = torch.Generator().manual_seed(seed)
    size = len(eigenvalues)
    q = torch.linalg.qr(torch.randn(size, size, generator=draw, dtype=torch.float64)).Q
    return q @ torch.tensor(eigenvalues, dtype=torch.float64).diag() @ q.T


def start(size):
    return torch.randn(size, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.integers(0, 1000))
def test_largest_eigenvalue_of_any_symmetric_matrix(eigenvalues, seed):
    matrix = symmetric(eigenvalues, seed)
    found = largest_eigenvalue(times(matrix), start(len(matrix)), tolerance=1e-9)
    assert found == pytest.approx(max(eigenvalues), abs=1e-6)


def test_repeated_and_unconverged_eigenvalues_are_never_too_large():
    asked = []

    def products(vectors):
        asked.append(len(vectors))
        return -2 * vectors

    assert largest_eigenvalue(products, start(20)) == pytest.approx(-2)
    assert asked == [1]
    matrix = symmetric(list(torch.linspace(-3, 3, 60).tolist()), 0)
    found = [largest_eigenvalue(times(matrix), start(60), iterations=n) for n in (1, 3, 10)]
    assert found == sorted(found)
    assert found[-1] < 3


def test_zero_and_what_is_not_finite():
    assert largest_eigenvalue(lambda v: 0 * v, start(5)) == 0
    assert math.isnan(largest_eigenvalue(lambda v: torch.nan * v, start(5)))


@pytest.mark.parametrize("count", [1, 10, 25])
def test_trace_of_a_diagonal_matrix_is_exact(count):
    diagonal = torch.arange(6.0)
    estimate = trace(lambda z: z * diagonal, 6, count, torch.Generator().manual_seed(0))
    assert estimate == pytest.approx(15)


def test_trace_errs_by_as_much_as_it_says():
    matrix = symmetric([3.0, 1.0, -2.0, 0.5], 3)
    off_diagonal = matrix - matrix.diag().diag()
    deviation = math.sqrt(2 / 10 * off_diagonal.square().sum())
    draw = torch.Generator().manual_seed(0)
    errors = torch.tensor([trace(times(matrix.float()), 4, 10, draw) - 2.5 for _ in range(1000)])
    assert abs(errors.mean()) < 4 * deviation / math.sqrt(1000)
    assert errors.std() == pytest.approx(deviation, rel=0.1)
