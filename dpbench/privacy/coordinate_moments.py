"""Rényi divergences of noise on each of d coordinates, and of its sign, with Poisson sampling.

One example moves each coordinate by at most G, all of them at once. With Delta = G/scale, P and Q
the answers with and without it, and r = P/Q, a moment is E_Q[r^k], and the Rényi divergence of
order k is its logarithm over k - 1. Coordinates are independent, so logarithms of moments add.

Worst cases. A location family of log-concave noise (logistic, Laplace) is worst at the full shift
of every coordinate. A sign of logistic noise is a Bernoulli with logit S/scale, at a place S that
the data choose; the supremum over it is taken for each order, and is not where S is symmetric.

A common place for all coordinates is worst (Dong, Durfee and Rogers 2020, for the exponential
mechanism). Take two coordinates whose losses for the answer 1 add up to c, and any convex function
of r. Given c, the law of how many of the two answer -1 has one degree of freedom, along which mass
goes from one to none and two; as the function is convex in exp(count Delta), it grows with that,
and the mass at two, prod_j (exp(t_j) - 1)/(exp(Delta) - 1), is largest for equal t_j.
"""

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from dpbench.privacy.ledger import CoordinateMechanism

ROUNDING = 4e-15
"""What float64 may lose of a logarithm of a moment, for each coordinate and order; added."""


def log_moments(mechanism: CoordinateMechanism, orders: np.ndarray) -> np.ndarray:
    """log E_Q[r^k], or an upper bound of it, for orders k >= 0 [K]; 0 for 0 and 1."""
    law = "signed" if mechanism.signed else mechanism.noise
    moments = np.zeros(len(orders))
    higher = orders > 1
    k = orders[higher]
    one = LOG_MOMENTS[law](mechanism.shift, k)
    moments[higher] = mechanism.dimension * (one + ROUNDING * k)
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
        np.log1p(small**2 / 6 * (1 + small**2 / 20 * (1 + small**2 / 42 * _rest(small)))),
        large + np.log(-np.expm1(-2 * large)) - np.log(2 * large),
    )


def _rest(x: np.ndarray) -> np.ndarray:
    """The end of the series of sinh(x)/x below 1, to 1e-16."""
    return 1 + x**2 / 72 * (1 + x**2 / 110 * (1 + x**2 / 156 * (1 + x**2 / 210)))


def _laplace(shift: float, k: np.ndarray) -> np.ndarray:
    """k/(2k-1) exp((k-1) Delta) + (k-1)/(2k-1) exp(-k Delta) (Mironov 2017, Table II)."""
    up = np.log(k / (2 * k - 1)) + (k - 1) * shift
    return np.logaddexp(up, np.log((k - 1) / (2 * k - 1)) - k * shift)


def _signed(shift: float, k: np.ndarray) -> np.ndarray:
    """The supremum over the place of one coordinate, in closed form.

    With t in [0, Delta] the loss of the answer 1 and t - Delta that of the other, u = exp(t), the
    moment is u^(k-1) (A - u B)/(exp(Delta) - 1), A = exp(Delta) - exp(-(k-1) Delta),
    B = 1 - exp(-(k-1) Delta), which is largest at u = (k-1) A/(k B).
    """
    log_a = shift + np.log(-np.expm1(-k * shift))
    log_b = np.log(-np.expm1(-(k - 1) * shift))
    log_u = np.log((k - 1) / k) + log_a - log_b
    return (k - 1) * log_u + log_a - np.log(k) - math.log(math.expm1(shift))


LOG_MOMENTS = {"logistic": _logistic, "laplace": _laplace, "signed": _signed}


def removed(mechanism: CoordinateMechanism, rate: float, orders: np.ndarray) -> np.ndarray:
    """log E_Q[(1 - q + q r)^a], at most, for orders a > 1 [K].

    At whole orders by the binomial theorem; between them by interpolation, which bounds from above
    as the logarithm of a moment is convex in its order. With q = 1 the moments themselves.
    """
    if rate == 1:
        return log_moments(mechanism, orders)
    whole = np.unique(np.concatenate([np.floor(orders), np.ceil(orders)])).astype(int)
    moments = log_moments(mechanism, np.arange(whole[-1] + 1.0))
    sampled = [_mixed(moments[: order + 1], rate) for order in whole]
    return np.interp(orders, whole, sampled)


def _mixed(moments: np.ndarray, rate: float) -> float:
    """log sum_k C(a, k) (1 - q)^(a - k) q^k exp(moments_k), k from 0 to a."""
    a, k = len(moments) - 1, np.arange(len(moments))
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    weights = choose + (a - k) * math.log1p(-rate) + k * math.log(rate)
    return max(float(logsumexp(weights + moments)), 0.0)
