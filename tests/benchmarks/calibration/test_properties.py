"""Facts A.1 to A.4 of Bu et al. (calibration), with their counter-examples and searches of ours."""

import math

import pytest
import torch
from dpbench.benchmarks.calibration.properties import TOLERANCE, properties


def matrix(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def positive_definite(draw, m):
    root = torch.randn(m, m, dtype=torch.float64, generator=draw)
    return root @ root.mT + 1e-3 * torch.eye(m, dtype=torch.float64)


def positive_diagonal(draw, m):
    return torch.rand(m, dtype=torch.float64, generator=draw).mul(3).exp().diag()


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


def test_numbers_are_in_units_of_the_frobenius_norm_and_zero_within_the_tolerance():
    seen = properties(100 * matrix([3, 1], [0, -4]))
    norm = math.sqrt(9 + 1 + 16)
    assert seen.asymmetry == pytest.approx(1 / norm)
    assert seen.quadratic == pytest.approx((-0.5 - math.sqrt(0.25 + 12.25)) / norm)
    assert seen.eigenvalue == pytest.approx(-4 / norm)
    assert seen.imaginary == 0
    for share, kept in ((0.5, True), (2, False)):
        off = share * TOLERANCE * math.sqrt(2)
        seen = properties(matrix([1, off], [0, 1]))
        assert (seen.asymmetry <= TOLERANCE) == kept
        seen = properties(matrix([math.sqrt(2), 0], [0, -off]))
        assert all((least >= -TOLERANCE) == kept for least in (seen.quadratic, seen.eigenvalue))
    seen = properties(torch.zeros(3, 3, dtype=torch.float64))
    assert seen.asymmetry <= TOLERANCE
    assert seen.quadratic == seen.eigenvalue == 0


def test_fact_1_the_product_keeps_its_eigenvalues_and_not_its_quadratic_form():
    A = matrix([1, 1], [1, 2]) @ matrix([1, 0], [0, 0.1])
    x = matrix([1], [-2])
    assert (x.mT @ A @ x).item() == pytest.approx(-0.4)
    seen = properties(A)
    assert seen.asymmetry > TOLERANCE
    assert seen.quadratic < -TOLERANCE
    assert seen.eigenvalue >= -TOLERANCE


def test_fact_1_holds_for_every_product_and_symmetry_only_for_a_constant_diagonal(draw):
    for _ in range(200):
        M = positive_definite(draw, 4)
        seen = properties(M @ positive_diagonal(draw, 4))
        assert seen.eigenvalue > 0
        assert seen.imaginary < 1e-8
        assert seen.asymmetry > TOLERANCE
        assert properties(M @ (0.3 * torch.eye(4, dtype=torch.float64))).asymmetry <= TOLERANCE


def test_fact_2_positive_eigenvalues_and_not_positive_in_quadratic_form():
    A = matrix([-1, 3], [-3, 8])
    seen = properties(A)
    assert seen.eigenvalue == pytest.approx((7 - 3 * math.sqrt(5)) / 2 / A.norm().item())
    assert seen.eigenvalue >= -TOLERANCE
    assert seen.quadratic == pytest.approx(-1 / A.norm().item())
    assert seen.quadratic < -TOLERANCE


def test_fact_3_positive_in_quadratic_form_and_complex_eigenvalues_above_it(draw):
    seen = properties(matrix([1, 1], [-1, 1]))
    assert seen.quadratic >= -TOLERANCE
    assert (seen.eigenvalue, seen.imaginary) == pytest.approx((0.5, 0.5))
    for _ in range(200):
        seen = properties(torch.randn(5, 5, dtype=torch.float64, generator=draw))
        assert seen.eigenvalue >= seen.quadratic - TOLERANCE


def fact_4(corner):
    """H1 C1 + H2 C2 of Fact A.4, with H1[1, 1] as given, and its two matrices."""
    H1, H2 = matrix([corner, 2], [2, 7]), matrix([3, 2], [2, 2])
    return H1 @ matrix([0.9, 0], [0, 0.4]) + H2 @ matrix([0.1, 0], [0, 0.6]), H1, H2


def test_fact_4_the_sum_of_products_may_have_a_negative_eigenvalue():
    A, H1, H2 = fact_4(0.7)
    assert min(properties(H).eigenvalue for H in (H1, H2)) > 0
    assert properties(A).eigenvalue < -TOLERANCE


def test_fact_4_has_its_zero_eigenvalue_at_seven_ninths_and_not_as_printed_at_eight():
    zero, H1, _ = fact_4(7 / 9)
    assert properties(H1).eigenvalue > 0
    assert properties(zero).eigenvalue == pytest.approx(0, abs=TOLERANCE)
    printed, _, _ = fact_4(8 / 9)
    assert torch.linalg.det(printed).item() == pytest.approx(0.4)
    assert properties(printed).eigenvalue > 0.01


def test_fact_4_a_search_finds_sums_that_are_not_symmetric_and_have_a_negative_eigenvalue(draw):
    found = []
    for _ in range(600):
        pairs = [(positive_definite(draw, 3), positive_diagonal(draw, 3)) for _ in range(2)]
        assert min(properties(H).eigenvalue for H, _ in pairs) > 0
        found.append(properties(sum(H @ C for H, C in pairs)))
    lost = [seen for seen in found if seen.eigenvalue < -TOLERANCE]
    assert lost
    assert not any(seen.asymmetry <= TOLERANCE for seen in lost)
    assert not any(seen.quadratic >= -TOLERANCE for seen in lost)
