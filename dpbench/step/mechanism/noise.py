"""Noise distributions, added to a sum of stated sensitivity, and their ledger entries."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.ledger import (
    CoordinateLaw,
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Mechanism,
)
from dpbench.step.clipping import Part, Problem
from dpbench.step.mechanism.draws import (
    FEWEST,
    Quantile,
    add_gaussian,
    draws,
    erfinv_is_faster,
    few_draws,
    noise_kernel,
)
from dpbench.step.mechanism.streams import DrawnStream, GpuStream, Stream
from dpbench.system.errors import UserError

CHUNK = {"cpu": 2**17, "cuda": 2**22}
"""Numbers drawn at once, on a CPU by each of torch's threads: so many that calls take little of the
time, and few enough for a CPU's caches and a GPU's memory. The draws do not depend on it."""

GRID = 2.0**-20
"""The grid that noisy sums are rounded to, relative to the power of two below the noise scale."""


class Noise(Part, ABC):
    """A noise distribution, scaled by a multiplier of the sensitivity.

    The defaults are for independent draws in each step, without state.
    """

    bands: int | None = 1
    """The number of consecutive steps over which noise is correlated, in which an example may take
    part only once; 1 for independent noise; None for all steps, with a turn in each epoch."""

    private: bool = True
    """Whether it adds noise at all."""

    per_coordinate: bool = False
    """Whether its guarantee needs a bound on each coordinate of the sum."""

    def advance(self, total: Tensor, stream: Stream) -> Self:
        """The noise after drawing for this step's total [D]; call `add` on the result.

        All state is in tensor fields and is as sensitive as the data.
        """
        return self

    @abstractmethod
    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        """total [D] plus one draw; total may be overwritten. Called once per logical batch."""

    @abstractmethod
    def mechanism(self, multiplier: float) -> Mechanism:
        """The mechanism of one call, for the ledger."""


def _logistic(u: Tensor) -> Tensor:
    return u.log() - (-u).log1p()


def _laplace(u: Tensor) -> Tensor:
    return (2 * u).log()


QUANTILES: dict[CoordinateLaw, Quantile] = {"logistic": _logistic, "laplace": _laplace}
"""Quantile functions by law, at u <= 1/2. All laws are symmetric about 0; their standard deviations
are pi/sqrt(3) and sqrt(2)."""

LAWS = {torch.special.ndtri: "gaussian", **{function: law for law, function in QUANTILES.items()}}
"""Laws by quantile function."""


def add_rounded(total: Tensor, scale: float | Tensor, quantile: Quantile, stream: Stream) -> Tensor:
    """total [D] plus scale times draws of a law, in place, rounded to a grid; scale is a scalar.

    Drawn and added in float64, and rounded to multiples of GRID times the power of two below the
    scale: of that alone, and so that each point collects thousands of draws. The last digits of
    the release then reveal nothing about the sum, as they do without (Mironov 2012).
    """
    if isinstance(stream, DrawnStream):
        return total.copy_(_rounded(stream.draws * scale + total, scale))
    scale = _float64_scale(scale, stream)
    if isinstance(stream, GpuStream):
        if add_noise := noise_kernel():
            law, first = LAWS[quantile], stream.taken(len(total))
            scalar = scale if isinstance(scale, Tensor) else stream.scalar(scale)
            add_noise(total, scalar, stream.key, stream.place, first, law, GRID)
            return total
        add, size = _add_on_gpu, CHUNK["cuda"]
    else:
        add, size = _add_on_cpu, CHUNK["cpu"] * torch.get_num_threads()
    # A view takes as long as the noise of a small model.
    for part in total.split(size) if total.numel() > size else (total,):
        add(part, scale, quantile, stream)
    return total


def _add_on_cpu(part: Tensor, scale: float | Tensor, quantile: Quantile, stream: Stream) -> None:
    """`add_rounded` for one chunk [n], with a stream on the CPU."""
    scale = float(scale)
    grid = float(_grid(scale))
    if quantile is torch.special.ndtri and part.numel() >= FEWEST and erfinv_is_faster():
        add_gaussian(part, scale, grid, stream)
        return
    values = part.cpu().numpy()
    noisy = few_draws(stream, part.numel(), quantile) * scale
    noisy += values
    values[:] = np.rint(noisy / grid) * grid
    if not part.is_cpu:
        part.copy_(torch.from_numpy(values))


def _add_on_gpu(part: Tensor, scale: float | Tensor, quantile: Quantile, stream: Stream) -> None:
    """`add_rounded` for one chunk [n], with a stream on its GPU."""
    noisy = draws(stream, len(part), quantile).mul_(scale).add_(part)
    part.copy_(_rounded(noisy, scale))


def _float64_scale(scale: float | Tensor, stream: Stream) -> float | Tensor:
    """The scale as a float, or on a GPU, where that would force a synchronisation, as float64."""
    if isinstance(scale, Tensor):
        return scale.to(stream.device, torch.float64) if scale.is_cuda else scale.item()
    return scale


def _rounded(noisy: Tensor, scale: float | Tensor) -> Tensor:
    """The noisy sum float64 rounded, in place, to the grid of a scale."""
    grid = _grid(scale)
    return noisy.div_(grid).round_().mul_(grid)


def _grid(scale: float | Tensor) -> float | Tensor:
    """GRID times the largest power of two up to a scale."""
    if isinstance(scale, Tensor):
        return torch.ldexp(torch.full_like(scale, GRID / 2), torch.frexp(scale).exponent)
    return math.ldexp(GRID / 2, math.frexp(scale)[1])


@dataclass(frozen=True)
class Gaussian(Noise):
    """Independent N(0, (multiplier * sensitivity)^2) per coordinate (Abadi et al. 2016)."""

    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        return add_rounded(total, multiplier * sensitivity, torch.special.ndtri, stream)

    def mechanism(self, multiplier: float) -> Mechanism:
        return GaussianMechanism(multiplier)


@dataclass(frozen=True)
class CorrelatedGaussian(Gaussian):
    """w_t times multiplier * sensitivity, where C w = z ~ N(0, I), and C is lower triangular.

    correlated: w_t in its first row, then what later steps need [., D] float64, as sensitive as the
    data.
    """

    correlated: Tensor | None = field(default=None, compare=False, repr=False)

    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        assert self.correlated is not None
        scale = _float64_scale(multiplier * sensitivity, stream)
        noisy = self.correlated[0] * scale + total.to(stream.device)
        return total.copy_(_rounded(noisy, scale))


@dataclass(frozen=True)
class PerCoordinate(Noise):
    """Independent draws of a law for each coordinate, times multiplier * sensitivity.

    law: one of QUANTILES; the sign of a sum with logistic noise is the exponential mechanism over
    signs r with utility r_i g_i (the note on DP-SignSGD, section 1). size: the number of
    coordinates, each of which one example moves by at most sensitivity/sqrt(size).
    """

    law: CoordinateLaw
    size: int | None = None
    per_coordinate = True

    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        return add_rounded(total, multiplier * sensitivity, QUANTILES[self.law], stream)

    def mechanism(self, multiplier: float) -> Mechanism:
        if self.size is None:
            raise UserError("noise per coordinate needs the number of coordinates: call bind.")
        return CoordinateMechanism(self.law, multiplier, self.size)

    def bind(self, problem: Problem) -> Self:
        return replace(self, size=problem.size)


@dataclass(frozen=True)
class NoNoise(Noise):
    """No noise: the exact sum is released, so epsilon is infinite."""

    private = False

    def add(
        self, total: Tensor, sensitivity: float | Tensor, multiplier: float, stream: Stream
    ) -> Tensor:
        return total

    def mechanism(self, multiplier: float) -> Mechanism:
        return Exact()
