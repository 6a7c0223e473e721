"""The update seam: what it makes of the noisy sum, and what the ledger hears."""

import pytest
import torch

from dpbench.privacy.ledger import CoordinateMechanism, Exact, GaussianMechanism
from dpbench.step.mechanism.update import Plain, Sign

NOISY = torch.tensor([-2.5, -1e-30, 0.0, -0.0, 3.0], dtype=torch.float64)
THETA = torch.ones(5, dtype=torch.float64)
LOGISTIC, LAPLACE = (CoordinateMechanism(law, 0.7, 9) for law in ("logistic", "laplace"))


def test_plain_changes_nothing_and_signs_of_gaussian_noise_are_told_of():
    assert Plain()(NOISY, THETA) is NOISY
    assert Plain().releases(LOGISTIC, None) == LOGISTIC
    signed = Sign().releases(GaussianMechanism(1.5), 9)
    assert signed == CoordinateMechanism("gaussian", 1.5, 9, signed=True)


@pytest.mark.parametrize("zero", [1, 0])
def test_a_sign_is_one_of_two_answers_and_zero_is_what_was_said(zero):
    found = Sign(zero)(NOISY, THETA)
    assert found.tolist() == [-1, -1, zero, zero, 1]
    assert found.dtype == NOISY.dtype


def test_the_ledger_marks_logistic_noise_released_as_signs():
    signed = Sign().releases(LOGISTIC, 9)
    assert signed == CoordinateMechanism("logistic", 0.7, 9, signed=True)
    for mechanism in (LAPLACE, GaussianMechanism(1.0), Exact()):
        assert Sign().releases(mechanism, None) == mechanism
    correlated = GaussianMechanism(1.0, bands=4)
    assert Sign().releases(correlated, 9) == correlated
