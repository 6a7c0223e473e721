"""Buffered linear Toeplitz matrices C: products with them, and their sensitivity.

C is lower triangular and constant along diagonals: c_0 = 1, c_i = sum_j weights_j decays_j^(i - 1)
(Dvijotham et al. 2024).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def encoded(decays: Sequence[float], weights: Sequence[float], rows: np.ndarray) -> np.ndarray:
    """C times `rows` [T] float64. Each buffer is a first-order filter, which is accurate for decays
    close to 1."""
    from scipy.signal import lfilter  # takes a third of a second to import

    result = rows.astype(float)
    for decay, weight in zip(decays, weights, strict=True):
        result += weight * lfilter([0.0, 1.0], [1.0, -decay], rows)
    return result


@lru_cache(maxsize=4096)
def sensitivity(
    decays: tuple[float, ...], weights: tuple[float, ...], steps: int, cycle: int
) -> float:
    """The most that an example of norm 1 can move C x, x [T, D], in turns at least a cycle apart.

    It is the norm of the sum of columns 0, b, 2b, ... of C. Entries of C are not negative, so the
    inner products of its columns are not either, and gradients in one direction move C x most; nor
    do entries increase down a column, so early and close turns move it most (Kalinin and Lampert
    2024, Theorem 2). In cyclic samples, turns are exactly a cycle apart.
    """
    turns = np.zeros(steps)
    turns[::cycle] = 1
    return float(np.linalg.norm(encoded(decays, weights, turns)))
