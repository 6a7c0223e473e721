"""Poisson sampling of a privacy profile, against sums over a pair and against mpmath."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from dpbench.privacy.amplification import addition_deltas, removal_deltas
from dpbench.privacy.coordinates import signs, symmetric_place
from dpbench.privacy.gaussian import GaussianProfile


def hockey_stick(log_p: np.ndarray, log_q: np.ndarray, epsilon: float) -> float:
    return float(np.clip(np.exp(log_p) - np.exp(epsilon + log_q), 0, None).sum())


@pytest.mark.parametrize("rate", [0.05, 0.7, 1.0])
def test_sampling_is_that_of_the_pair(rate):
    ones, shift = np.arange(7), 1.1
    p, q = (stats.binom.logpmf(ones, 6, expit(x)) for x in (shift / 2, -shift / 2))
    ours = signs(6, shift, symmetric_place)
    mixed = np.logaddexp(np.log1p(-rate) + q, math.log(rate) + p) if rate < 1 else p
    for epsilon in (0.0, 0.02, 0.3, 1.5):
        sides = [s(ours, rate, np.array([epsilon]))[0] for s in (removal_deltas, addition_deltas)]
        pairs = hockey_stick(mixed, q, epsilon), hockey_stick(q, mixed, epsilon)
        assert sides == pytest.approx(pairs, rel=2e-4, abs=1e-12)


def exact(mu: float, epsilon: mpmath.mpf) -> mpmath.mpf:
    half, share = mpmath.mpf(mu) / 2, epsilon / mpmath.mpf(mu)
    return mpmath.ncdf(half - share) - mpmath.exp(epsilon) * mpmath.ncdf(-half - share)


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.05, 0.7, 0.999])
@pytest.mark.parametrize("mu", [0.05, 1.0, 4.0])
def test_a_sampled_gaussian_is_that_of_mpmath_to_the_stated_rounding(mu, rate):
    profile, q = GaussianProfile(mu), mpmath.mpf(rate)
    with mpmath.workdps(60):
        for size in (0.0, 1e-7, 1e-3, 0.2, 0.999, 1.001, 4.0, 12.0):
            epsilon = mpmath.mpf(size)
            left = 1 - mpmath.exp(epsilon) * (1 - q)
            pairs = {
                removal_deltas: q * exact(mu, mpmath.log(1 + mpmath.expm1(epsilon) / q)),
                addition_deltas: left * exact(mu, epsilon + mpmath.log(q / left))
                if left > 0
                else 0,
            }
            for side, theirs in pairs.items():
                (ours,) = side(profile, rate, np.array([size]))
                if theirs > 1e-290:
                    assert abs(ours / theirs - 1) <= profile.rounding
                else:
                    assert ours < 1e-280
