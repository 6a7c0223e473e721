"""Epsilons of noise on each of d coordinates and of its sign: by Rényi divergences, by profiles.

An entry is (rate, mechanism, times), as in the ledger; batches are Poisson samples. With Delta =
G/scale, P and Q the output distributions with and without an example, and r = P/Q, a moment is
E_Q[r^k]. Which case is the worst is derived in docs/privacy/accounting.md.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from dpbench.privacy.coordinate_profiles import profile, signs, symmetric_place
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.tight import Steps, tight_epsilon

CoordinateEntry = tuple[float, CoordinateMechanism, int]

ROUNDING = 4e-15
"""A bound of the round-off in a log moment, per coordinate and order; it is added."""


def renyi(entries: Sequence[CoordinateEntry], orders: np.ndarray) -> np.ndarray:
    """The Rényi divergences of all steps at orders > 1 [K]: upper bounds, adding and removing."""
    total = np.zeros(len(orders))
    for rate, mechanism, times in entries:
        total += times * np.maximum(
            removed_moments(mechanism, rate, orders), _added_moments(mechanism, rate, orders)
        )
    return total / (orders - 1)


def _added_moments(mechanism: CoordinateMechanism, rate: float, orders: np.ndarray) -> np.ndarray:
    """Log moments for adding: by the profile for signs; 0 where removing is known to cost more.

    Removing costs more for a pair that a reflection swaps (Mironov, Talwar and Zhang 2019, Theorem
    5), hence for additive symmetric noise, but not for signs at a given place.
    """
    if not mechanism.signed or rate == 1:
        return np.zeros(len(orders))
    return profile(mechanism).added_moments(rate, orders)


def equivalent_sigma(mechanism: CoordinateMechanism) -> float:
    """The noise multiplier of the Gaussian mechanism with the same chi-squared divergence, on which
    alone the central limit of Bu et al. 2020 depends."""
    return float(log_moments(mechanism, np.array([2.0]))[0]) ** -0.5


def symmetric_epsilon(entries: Sequence[CoordinateEntry], delta: float) -> float:
    """The epsilon of the symmetric pair of a sign of logistic noise in every step: a lower
    bound."""
    return tight_epsilon(
        [
            Steps(signs(mechanism.dimension, mechanism.shift, symmetric_place), rate, times)
            for rate, mechanism, times in entries
        ],
        delta,
    )


def log_moments(mechanism: CoordinateMechanism, orders: np.ndarray) -> np.ndarray:
    """log E_Q[r^k] or an upper bound [K], for orders k >= 0 [K]; 0 at orders up to 1."""
    law = "signed" if mechanism.signed else mechanism.noise
    moments = np.zeros(len(orders))
    higher = orders > 1
    k = orders[higher]
    moments[higher] = mechanism.dimension * (LOG_MOMENTS[law](mechanism.shift, k) + ROUNDING * k)
    return moments


def _logistic(shift: float, k: np.ndarray) -> np.ndarray:
    """sinh((2k - 1) Delta/2) / ((2k - 1) sinh(Delta/2)): the integral over u = F(x)."""
    return _log_sinhc((2 * k - 1) * shift / 2) - _log_sinhc(np.array(shift / 2))


def _log_sinhc(x: np.ndarray) -> np.ndarray:
    """log(sinh(x)/x) for x > 0."""
    small = np.minimum(x, 1.0)
    large = np.maximum(x, 1.0)
    return np.where(
        x < 1,
        np.log1p(small**2 / 6 * (1 + small**2 / 20 * (1 + small**2 / 42 * _series_tail(small)))),
        large + np.log(-np.expm1(-2 * large)) - np.log(2 * large),
    )


def _series_tail(x: np.ndarray) -> np.ndarray:
    """The tail of the series of sinh(x)/x for x below 1, to 1e-16."""
    return 1 + x**2 / 72 * (1 + x**2 / 110 * (1 + x**2 / 156 * (1 + x**2 / 210)))


def _laplace(shift: float, k: np.ndarray) -> np.ndarray:
    """k/(2k-1) exp((k-1) Delta) + (k-1)/(2k-1) exp(-k Delta) (Mironov 2017, Table II)."""
    up = np.log(k / (2 * k - 1)) + (k - 1) * shift
    return np.logaddexp(up, np.log((k - 1) / (2 * k - 1)) - k * shift)


def _signed(shift: float, k: np.ndarray) -> np.ndarray:
    """The supremum over the place of one coordinate, in closed form.

    With t in [0, Delta] the loss of the output 1, t - Delta that of -1, and u = exp(t), the moment
    is u^(k-1) (A - u B)/(exp(Delta) - 1), A = exp(Delta) - exp(-(k-1) Delta),
    B = 1 - exp(-(k-1) Delta), which is largest at u = (k-1) A/(k B).
    """
    log_a = shift + np.log(-np.expm1(-k * shift))
    log_b = np.log(-np.expm1(-(k - 1) * shift))
    log_u = np.log((k - 1) / k) + log_a - log_b
    return (k - 1) * log_u + log_a - np.log(k) - math.log(math.expm1(shift))


LOG_MOMENTS = {"logistic": _logistic, "laplace": _laplace, "signed": _signed}


def removed_moments(mechanism: CoordinateMechanism, rate: float, orders: np.ndarray) -> np.ndarray:
    """An upper bound of log E_Q[(1 - q + q r)^a] [K], for orders a > 1 [K].

    Integer orders use the binomial theorem; interpolation between them is an upper bound, as the
    logarithm of a moment is convex in its order. With q = 1 these are the unsampled moments.
    """
    if rate == 1:
        return log_moments(mechanism, orders)
    integers = np.unique(np.concatenate([np.floor(orders), np.ceil(orders)])).astype(int)
    moments = log_moments(mechanism, np.arange(integers[-1] + 1.0))
    sampled = [_sampled_moment(moments[: order + 1], rate) for order in integers]
    return np.interp(orders, integers, sampled)


def _sampled_moment(moments: np.ndarray, rate: float) -> float:
    """log sum_k C(a, k) (1 - q)^(a - k) q^k exp(moments_k), k from 0 to a."""
    a, k = len(moments) - 1, np.arange(len(moments))
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    weights = choose + (a - k) * math.log1p(-rate) + k * math.log(rate)
    return max(float(logsumexp(weights + moments)), 0.0)
