"""The epsilon claimed by the note on DP-SignSGD for signs of logistic noise: not a bound."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from dpbench.privacy.ledger import CoordinateMechanism


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
