"""Draws of a law that is symmetric about 0, from a random stream by inverse transform."""

import functools
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
    """The draws [n] float64 of words [n] int64 of a stream on the CPU.

    Mostly by numpy, whose calls on few numbers take half as long as torch's.
    """
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
