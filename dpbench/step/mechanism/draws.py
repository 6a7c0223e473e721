"""Draws of a law that is symmetric about 0, from a random stream by inverse transform.

On a CPU many Gaussian draws have the bits of `ndtri`, but are made by `erfinv`, which torch
vectorises; again by `ndtri` in the tails, and where rounding errors could move a noisy sum to the
next point of its grid.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dpbench.step.mechanism.streams import (
    CipherStream,
    GpuStream,
    Stream,
    Transform,
    uniforms,
    uniforms_of,
)

TAIL = 2.0**32
"""Tail probabilities, times 2^64, below which a draw takes further bits."""

FAR = 1 - 2.0**-8
"""The argument of `erfinv` beyond which its condition magnifies rounding errors too much."""

CLOSE = 2.0**-46
"""How far both ways of drawing may lie apart, in standard deviations: three times the rounding
error at FAR, where one of 2^-54 in the argument moves the quantile by 4.5e-15."""

FEWEST = 2**12
"""Draws below which the calls cost more than the faster function saves."""

SIGN = torch.iinfo(torch.int64).min
"""The sign bit of a word."""

Quantile = Callable[[Tensor], Tensor]
"""The quantile function of a law, at probabilities of at most 1/2."""


def draws(stream: Stream, size: int, quantile: Quantile) -> Tensor:
    """Draws [size] float64 of a law.

    A draw takes 64 bits: one for the sign and 63 for the tail probability. Where that is below
    2^-32 it takes 52 more, so that the tails reach to 2^-117 (12.4 standard deviations of a
    Gaussian) and are no coarser than the middle.
    """
    if isinstance(stream, GpuStream):
        if quantile is torch.special.ndtri and (add_noise := noise_kernel()):
            out = torch.zeros(size, dtype=torch.float64, device=stream.device)
            one = out.new_ones(())
            first = stream.taken(size)
            add_noise(out, one, stream.key, stream.place, first, "gaussian", 0.0)
            return out
        words, further = stream.bits_and_further(size)
        signed = words.double().add_(0.5)
        tails = _refined(signed.abs(), further)
        return quantile(tails.mul_(2.0**-64)).copysign_(signed)
    return torch.from_numpy(by_quantile(quantile, stream.bits(size).numpy(), stream))


@functools.cache
def noise_kernel() -> Callable[..., None] | None:
    """What draws, adds and rounds in one operation on a GPU; None without Triton."""
    try:
        from dpbench.step.mechanism.gpu_noise import add_noise
    except ImportError:
        return None
    return add_noise


def few_draws(stream: Stream, size: int, quantile: Quantile) -> np.ndarray:
    """`draws` for a stream on the CPU, those of several steps made at once; read-only."""
    if isinstance(stream, CipherStream):
        return stream.mapped(size, _transform(quantile))
    return by_quantile(quantile, stream.bits(size).numpy(), stream)


@functools.cache
def _transform(quantile: Quantile) -> Transform:
    return functools.partial(by_quantile, quantile)


def by_quantile(quantile: Quantile, words: np.ndarray, stream: Stream) -> np.ndarray:
    """The draws [n] float64 of words [n] int64 of a stream on the CPU; numpy is faster for few."""
    signed = words + 0.5
    tails = np.abs(signed)
    _refine(tails, stream)
    quantiles = quantile(torch.from_numpy(tails).mul_(2.0**-64)).numpy()
    return np.copysign(quantiles, signed, out=quantiles)


def _refine(tails: np.ndarray, stream: Stream) -> None:
    """Adds bits, in place, to tails below TAIL: they replace the half in a whole number and a half.

    Each whole number has its own stream for them, so that all other draws keep their bits.
    """
    if tails.min(initial=TAIL) == TAIL:
        return
    for place in (tails < TAIL).nonzero()[0].tolist():
        whole = int(tails[place])
        tails[place] = whole + uniforms(stream.derived(f"tail {whole}"), 1).item()


def _refined(tails: Tensor, further: Tensor) -> Tensor:
    """The tails with bits added as in `_refine`, from further words [n] for all of them: on a GPU,
    to look for those that need some would force a synchronisation."""
    return torch.where(tails < TAIL, tails.floor() + uniforms_of(further), tails)


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
