"""The epsilon claimed by the note on DP-SignSGD for signs of logistic noise: not a bound."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from dpbench.privacy.ledger import CoordinateMechanism


def note_epsilon(
    entries: Sequence[tuple[float, CoordinateMechanism, int]], delta: float, orders: Sequence[float]
) -> float:
    """min over lambda of (log(1/delta) + sum_t alpha_t(lambda))/lambda (the note, 2.1 and 3).

    alpha(lambda) = d log(p e^(lambda a) + (1-p) e^(-lambda a)), p = e^a/(1 + e^a), a = q Delta/2.
    It assumes the symmetric pair, which is not the worst case, and scales the loss by the sampling
    rate q, which is not how sampling amplifies. Entries are (rate, mechanism, times), and lambda is
    order - 1.
    """
    lambdas = np.array(orders) - 1
    total = sum(times * _alpha(mechanism, rate, lambdas) for rate, mechanism, times in entries)
    return float(np.min((math.log(1 / delta) + total) / lambdas))


def _alpha(mechanism: CoordinateMechanism, rate: float, lambdas: np.ndarray) -> np.ndarray:
    a = rate * mechanism.shift / 2
    terms = [lambdas * a - np.log1p(math.exp(-a)), -lambdas * a - np.log1p(math.exp(a))]
    return mechanism.dimension * logsumexp(terms, axis=0)
