"""Buffered linear Toeplitz matrices C: their rows, and what one example can move in all of them.

C is lower triangular and the same along diagonals: c_0 = 1, c_i = sum_j weights_j decays_j^(i - 1)
(Dvijotham et al. 2024).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def encoded(decays: Sequence[float], weights: Sequence[float], rows: np.ndarray) -> np.ndarray:
    """C rows, for rows [T] float64. Each term is a filter of first order, which is accurate for
    decays next to 1."""
    from scipy.signal import lfilter  # takes a third of a second to import

    result = rows.astype(float)
    for decay, weight in zip(decays, weights, strict=True):
        result += weight * lfilter([0.0, 1.0], [1.0, -decay], rows)
    return result


@lru_cache(maxsize=4096)
def sensitivity(
    decays: tuple[float, ...], weights: tuple[float, ...], steps: int, cycle: int
) -> float:
    """The most that an example of norm 1 moves C x, x [T, D], by turns at least a cycle apart.

    It is the norm of the sum of columns 0, b, 2b, ... of C. Entries of C are not negative, so the
    inner products of its columns are not either, and examples of one direction move C x most; they
    do not increase down a column, so turns that are early and close do (Kalinin and Lampert 2024,
    Theorem 2). Turns exactly a cycle apart are all that cyclic samples have.
    """
    turns = np.zeros(steps)
    turns[::cycle] = 1
    return float(np.linalg.norm(encoded(decays, weights, turns)))
