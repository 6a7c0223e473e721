"""Epsilons that papers claim, of which none is a bound: by a central limit, and for signs.

The Gaussian limit (Bu et al. 2020) is as in Opacus to the bit, which takes seconds to import. The
Edgeworth accountant (Wang et al. 2022) is without the paper's bounds on its remainder.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize
from scipy.special import logsumexp, ndtr

from dpbench.privacy.ledger import CoordinateMechanism

EPSILONS = np.arange(0, 500, 0.01)
"""Where delta is looked at for its crossing; as for the central limit, there is none above 500."""

SPACING, BEYOND = 1e-3, 12.0
"""Of the points of integrals: their distance, and how far they reach beyond both means."""

REVERSED = np.array([-1, 1, -1, 1])
"""The signs of the cumulants of a loss whose sign is reversed."""


def poisson_mu(rate: float, sigma: float, steps: int) -> float:
    """The mu of a number of steps on Poisson samples (Bu et al. 2020, Corollary 4)."""
    return np.sqrt(np.exp(sigma**-2) - 1) * np.sqrt(steps) * rate


def limit_epsilon(mu: float, delta: float) -> float:
    """The epsilon of mu-GDP at delta (Dong et al. 2022, Corollary 2.13); ValueError above 500."""

    def excess(epsilon: float) -> float:
        return ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2) - delta

    return optimize.root_scalar(excess, bracket=[0, 500], method="brentq").root


def loss_cumulants(rate: float, sigma: float) -> np.ndarray:
    """The first four cumulants of the loss of a step on a Poisson sample: shape (2, 4).

    The loss is log(q(x)/p(x)), where p is the density of N(0, 1), the output without the example,
    and q that of N(0, 1) or, with probability rate, of N(1/sigma, 1). The first row is under p, the
    second under q.
    """
    mu = 1 / sigma
    x = np.arange(-BEYOND, mu + BEYOND, SPACING)
    without, shifted = (np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (0, mu))
    loss = mu * x - mu**2 / 2
    if rate < 1:
        loss = np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
    densities = without, (1 - rate) * without + rate * shifted
    return np.array([_cumulants(loss, SPACING * density) for density in densities])


def _cumulants(values: np.ndarray, weights: np.ndarray) -> list[float]:
    mean = weights @ values
    second, third, fourth = (weights @ (values - mean) ** order for order in (2, 3, 4))
    return [mean, second, third, fourth - 3 * second**2]


def survival(cumulants: np.ndarray, x: np.ndarray) -> np.ndarray:
    """P(sum > x) by the Edgeworth expansion of second order, which may leave [0, 1]."""
    mean, variance, third, fourth = cumulants
    z = (x - mean) / math.sqrt(variance)
    skewness, kurtosis = third / variance**1.5, fourth / variance**2
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    hermite = z**2 - 1, z**3 - 3 * z, z**5 - 10 * z**3 + 15 * z
    factors = skewness / 6, kurtosis / 24, skewness**2 / 72
    return ndtr(-z) + density * sum(a * h for a, h in zip(factors, hermite, strict=True))


def expansion_epsilon(cumulants: np.ndarray, delta: float) -> float:
    """The larger of the epsilons of removing and of adding an example, from `loss_cumulants` of the
    summed loss; ValueError if the delta of the expansion does not cross the given one once."""
    under_p, under_q = cumulants
    pairs = (under_q, under_p), (under_p * REVERSED, under_q * REVERSED)
    return max(_crossing(*pair, delta) for pair in pairs)


def _crossing(actual: np.ndarray, other: np.ndarray, delta: float) -> float:
    """Where P(loss > epsilon) - e^epsilon Q(loss > epsilon) is delta, for losses log(dP/dQ)."""

    def excess(epsilon: np.ndarray) -> np.ndarray:
        return survival(actual, epsilon) - np.exp(epsilon) * survival(other, epsilon) - delta

    above = excess(EPSILONS) > 0
    crossings = np.flatnonzero(above[1:] != above[:-1])
    if len(crossings) != 1 or above[-1]:
        raise ValueError(f"the delta of the expansion crosses this one {len(crossings)} times")
    return optimize.brentq(excess, *EPSILONS[crossings[0] : crossings[0] + 2])


def note_epsilon(
    entries: Sequence[tuple[float, CoordinateMechanism, int]], delta: float, orders: Sequence[float]
) -> float:
    """The note's epsilon (sections 2.1 and 3), where every coordinate can move by the bound G.

    It assumes the symmetric pair, which is not the worst case, and scales the loss by the sampling
    rate q, which is not how sampling amplifies. Entries are (rate, mechanism, times).
    """
    lambdas = np.array(orders) - 1
    moments = [
        times * (mechanism.dimension * note_moments(rate * mechanism.shift, lambdas))
        for rate, mechanism, times in entries
    ]
    return note_conversion(np.sum(moments, axis=0), delta, lambdas)


def note_moments(loss: float, lambdas: np.ndarray) -> np.ndarray:
    """log(p e^(lambda a) + (1-p) e^(-lambda a)) of one coordinate, p = e^a/(1 + e^a), a = loss/2.

    loss: q G over the scale of the noise.
    """
    a = loss / 2
    terms = [lambdas * a - np.log1p(math.exp(-a)), -lambdas * a - np.log1p(math.exp(a))]
    return logsumexp(terms, axis=0)


def note_conversion(moments: np.ndarray, delta: float, lambdas: np.ndarray) -> float:
    """min over lambda of (log(1/delta) + alpha(lambda))/lambda, for the moments of a whole run."""
    return float(np.min((math.log(1 / delta) + moments) / lambdas))
