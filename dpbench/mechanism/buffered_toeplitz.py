"""Buffered linear Toeplitz matrices with the least noise in prefix sums."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpbench.privacy.toeplitz import encoded, sensitivity

HORIZON = 2**15
"""The most steps that a matrix is optimised for: of a longer run, the first ones."""


class Buffers(NamedTuple):
    """The matrix with c_0 = 1 and c_i = sum_j weights_j decays_j^(i - 1).

    decays: in [0, 1). weights: with a sum below 1.
    """

    decays: tuple[float, ...]
    weights: tuple[float, ...]


def buffered_square_root(number: int, steps: int) -> Buffers:
    """Approximates the square root of the prefix sum, 1, 1/2, 3/8, ..., by `number` buffers.

    c_i = 1/pi times the integral of t^(i - 1) (t/(1 - t))^(1/2) over [0, 1], by the midpoint rule
    in log(t/(1 - t)), from -2 to log(steps).
    """
    width = (math.log(steps) + 2) / number
    t = 1 / (1 + np.exp(2 - width * (np.arange(number) + 0.5)))
    return Buffers(tuple(t.tolist()), tuple((width / np.pi * t**1.5 * (1 - t) ** 0.5).tolist()))


@lru_cache(maxsize=256)
def optimal(number: int, steps: int, cycle: int) -> Buffers:
    """A local minimum of `error`, searched from the approximate square root.

    Rounded to four digits, of which another processor may find the last ones different: the minimum
    is flat. The ledger has the matrix that is used.
    """
    from scipy.optimize import minimize

    steps = min(steps, HORIZON)
    t, w = np.array(buffered_square_root(number, steps))
    start = np.log([t / (1 - t), w / (1 - w.sum())])
    found = minimize(
        lambda x: math.log(error(_buffers(x), steps, cycle)), start.ravel(), method="L-BFGS-B"
    )
    decays, weights = _buffers(found.x)
    return Buffers(tuple(1 - _rounded(1 - t) for t in decays), tuple(map(_rounded, weights)))


def error(buffers: Buffers, steps: int, cycle: int) -> float:
    """The variance of the noise in prefix sums, averaged over steps, at noise multiplier 1.

    sum_i (T - i) b_i^2/T, where b are the prefix sums of the coefficients of C^-1, times the
    squared sensitivity. C^-1 has buffers too: its decays are the eigenvalues of diag(decays) -
    sqrt(weights) sqrt(weights)^T, its weights -(q^T sqrt(weights))^2 for the eigenvectors q.
    """
    root = np.sqrt(buffers.weights)
    decays, vectors = np.linalg.eigh(np.diag(buffers.decays) - np.outer(root, root))
    sums = encoded(decays.tolist(), (-((root @ vectors) ** 2)).tolist(), np.ones(steps))
    variance = float(sums**2 @ np.arange(steps, 0.0, -1.0)) / steps
    return variance * sensitivity.__wrapped__(*buffers, steps, cycle) ** 2


def _buffers(x: np.ndarray) -> Buffers:
    """Maps unconstrained numbers to decays in (0, 1) and weights with a sum below 1."""
    logits, logs = x.reshape(2, -1)
    odds = np.exp(logs)
    decays, weights = 1 / (1 + np.exp(-logits)), odds / (1 + odds.sum())
    return Buffers(tuple(decays.tolist()), tuple(weights.tolist()))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
