"""Matrices C of correlated noise C^-1 z: products with them, and their sensitivity.

C is lower triangular and constant along diagonals: buffered, with c_0 = 1 and c_i = sum_j weights_j
decays_j^(i - 1), or the inverse of a banded matrix, whose columns may then be normalised.
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


def inverse_encoded(taken: Sequence[float], rows: np.ndarray) -> np.ndarray:
    """C times `rows` [T] float64, where C^-1 has 1 on its diagonal, and -taken_i on the i-th one
    below."""
    from scipy.signal import lfilter

    return lfilter([1.0], [1.0, *(-share for share in taken)], rows.astype(float))


@lru_cache(maxsize=64)
def column_norms(taken: tuple[float, ...], horizon: int) -> np.ndarray:
    """The norms of the columns [horizon] of C over so many steps."""
    squares = inverse_encoded(taken, np.eye(1, horizon)[0]) ** 2
    return np.sqrt(np.cumsum(squares))[::-1]


@lru_cache(maxsize=4096)
def inverse_sensitivity(
    taken: tuple[float, ...], normalised: bool, horizon: int, steps: int, cycle: int
) -> float:
    """As `sensitivity`, over the first steps of a horizon, for C whose inverse is banded.

    Entries of C are not negative, since those of C^-1 off its diagonal are not positive. Without
    normalisation the first turns move C x most if entries do not increase down a column, as above.
    With it, and one band below the diagonal, whose entry is -l, the columns of turns j < k have the
    inner product l^(k-j) (1 - l^(2 (steps - k)))/((1 - l^2) d_j d_k), where d are the norms; it
    does not grow if both turns are a step later, so the first turns move it most there, too. Raises
    ValueError where entries increase.
    """
    turns = (np.arange(steps) % cycle == 0).astype(float)
    if normalised:
        turns /= column_norms(taken, horizon)[:steps]
    elif (np.diff(inverse_encoded(taken, np.eye(1, steps)[0])) > 1e-12).any():
        raise ValueError(f"the entries of C increase down a column with {taken}.")
    return float(np.linalg.norm(inverse_encoded(taken, turns)))
