"""A lower bound of what shuffled batches spend, from the largest noisy sum of each epoch.

The gradient of the example is 1, and those of all others are -1. Its batch then stands out by 2, or
by 1 if its gradient is replaced by zero; which batch that is remains hidden by the permutation. The
adversary sees the largest of the t sums of each epoch (Chua et al. 2024, How Private are DP-SGD
Implementations?, arXiv:2403.17673, Section 4; several epochs: arXiv:2411.04205).
"""

import numpy as np
from scipy import fft
from scipy.special import log_ndtr

BINS = 4000
"""The intervals into which the largest sum is sorted: with fewer, the bound is smaller."""

INTERVAL = 1e-3
"""Privacy losses are rounded down to multiples of it."""

SLACK = 1e-12
"""An upper bound of the round-off that a transform adds to delta."""


def shuffled_lower_bound(sigma: float, steps: int, epochs: int, delta: float) -> float:
    """An epsilon that epochs of `steps` shuffled batches exceed at delta, or 0.

    For replacing one gradient by zero, in the worse direction; sigma in units of the sensitivity.
    """
    p, q = _largest(sigma, steps, 2), _largest(sigma, steps, 1)
    return max(_epsilon(one, other, epochs, delta) for one, other in ((p, q), (q, p)))


def _largest(sigma: float, steps: int, shift: float) -> np.ndarray:
    """The probability of each interval for the largest of `steps` sums, one of them shifted."""
    edges = np.linspace(-1 - 9 * sigma, 3 + 9 * sigma, BINS - 1)
    logs = log_ndtr((edges - shift) / sigma) + (steps - 1) * log_ndtr(edges / sigma)
    beyond = np.concatenate([[1.0], -np.expm1(logs), [0.0]])
    below = np.concatenate([[0.0], np.exp(logs), [1.0]])
    # Each difference is taken where its terms are small.
    return np.where(below[1:] < 0.5, np.diff(below), -np.diff(beyond))


def _epsilon(p: np.ndarray, q: np.ndarray, epochs: int, delta: float) -> float:
    """The largest epsilon at which `epochs` independent pairs p against q exceed delta."""
    both = (p > 1e-200) & (q > 1e-200)
    indices = np.floor(np.log(p[both] / q[both]) / INTERVAL).astype(int)
    lowest = indices.min()
    masses = np.bincount(indices - lowest, p[both])
    size = epochs * (len(masses) - 1) + 1
    transform = fft.rfft(masses, fft.next_fast_len(size)) ** epochs
    total = fft.irfft(transform, fft.next_fast_len(size))[:size]
    losses = (epochs * lowest + np.arange(size)) * INTERVAL

    def exceeded(epsilon: float) -> bool:
        past = losses > epsilon
        return float(total[past] @ -np.expm1(epsilon - losses[past])) - SLACK > delta

    low, high = 0.0, max(losses[-1], 0.0)
    while high - low > INTERVAL / 10:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeded(middle) else (low, middle)
    return low if exceeded(0.0) else 0.0
