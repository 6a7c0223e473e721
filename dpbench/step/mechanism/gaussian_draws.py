"""Gaussian draws added to a sum and rounded, on a CPU: the bits of `ndtri`, mostly by `erfinv`.

torch evaluates `erfinv` with a vectorised library where it has one, and `ndtri` one number at a
time. They agree to rounding errors except in the tails, and the sum is rounded to a grid that is
much coarser. So draws are made by `erfinv`, and again by `ndtri` in the tails and where a rounding
error could move the sum to the next point of the grid.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dpbench.step.mechanism.draws import by_quantile
from dpbench.step.mechanism.streams import Stream

FAR = 1 - 2.0**-8
"""The argument of `erfinv` beyond which its condition magnifies rounding errors too much."""

CLOSE = 2.0**-46
"""How far both ways of drawing may lie apart, in standard deviations: three times the rounding
error at FAR, where one of 2^-54 in the argument moves the quantile by 4.5e-15."""

FEWEST = 2**12
"""Draws below which the calls cost more than the faster function saves."""

SIGN = torch.iinfo(torch.int64).min
"""The sign bit of a word."""


def add_gaussian(part: Tensor, scale: float, grid: float, stream: Stream) -> None:
    """Adds scale * N(0, 1) to part [n], in place, and rounds to multiples of a grid.

    The same bits as draws by `ndtri` added in float64 and rounded. stream: on the CPU; scale and
    grid: in the unit of part, the grid a power of two of at most the scale.
    """
    words = stream.bits(len(part))
    # A word w is the upper tail probability (w + 1/2) 2^-64 of its sign: with the sign bit flipped,
    # erf of the draw / sqrt(2).
    erf = words.bitwise_xor(SIGN).double().mul_(-(2.0**-63))
    far = np.flatnonzero(np.abs(erf.numpy()) > FAR)
    noisy = erf.erfinv_().mul_(math.sqrt(2) * scale)
    noisy.numpy()[far] = scale * _by_ndtri(words, far, stream)
    total = part.to(stream.device)
    points = noisy.add_(total).mul_(1 / grid)
    rounded = points.round()
    slack = CLOSE * scale / grid + 2.0**-50 * _largest(total, scale) / grid
    distances = points.sub_(rounded).abs_()
    if distances.amax() > 0.5 - slack:
        near = np.flatnonzero(distances.numpy() > 0.5 - slack)
        exact = scale * torch.from_numpy(_by_ndtri(words, near, stream)) + total[near]
        rounded[near] = exact.div_(grid).round_()
    part.copy_(rounded.mul_(grid))


def _largest(total: Tensor, scale: float) -> float:
    """A bound of the noisy sum's absolute value: no draw is beyond 13 standard deviations."""
    return 13 * scale + float(total.abs().amax())


def _by_ndtri(words: Tensor, places: np.ndarray, stream: Stream) -> np.ndarray:
    """The draws [k] float64 of the words in these places [k]."""
    return by_quantile(torch.special.ndtri, words.numpy()[places], stream)


def erfinv_is_faster() -> bool:
    """Whether `erfinv` is vectorised: by MKL, where this torch has it. Not timed, as on a busy
    machine a wait for a thread decides."""
    return torch.backends.mkl.is_available()
