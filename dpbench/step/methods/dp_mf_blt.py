"""DP-MF with noise correlated over the whole run, generated with a few buffers."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, NamedTuple, Self

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from dpbench.privacy.guarantee import Guarantee
from dpbench.privacy.ledger import Mechanism, ToeplitzGaussian
from dpbench.privacy.toeplitz import encoded, sensitivity
from dpbench.step.clipping import Bounds, ClipName, Problem, make_clip
from dpbench.step.mechanism import CorrelatedGaussian, Method, Stream, checked
from dpbench.step.mechanism.draws import draws

BufferCount = Annotated[int, Meta(ge=1, le=8)]

HORIZON = 2**15
"""The most steps that a matrix is optimised for: of a longer run, the first ones."""

GUARANTEE = Guarantee(
    "proven",
    "The noisy sums of all steps are one Gaussian mechanism, whose sensitivity counts every turn "
    "of an example; nothing is amplified by sampling.",
)


@checked
def dp_mf_blt(bound: Bounds, buffers: BufferCount, clip: ClipName, style: str) -> Method:
    """DP-SGD with noise C^-1 z by a buffered linear Toeplitz matrix C (Dvijotham et al. 2024).

    An example is in the batch of one step of a cycle, which is an epoch, and of the same step in
    all cycles (McMahan et al. 2024). The proof is on the card.
    """
    decays, weights = buffered_square_root(buffers, steps=1000)
    noise = BufferedGaussian(decays=decays, weights=weights)
    return Method("dp_mf_blt", make_clip(clip, style, bound), GUARANTEE, noise=noise)


@dataclass(frozen=True)
class BufferedGaussian(CorrelatedGaussian):
    """w_t times multiplier * sensitivity, where C w = z is N(0, I), and C is buffered Toeplitz.

    decays, weights: of C, see `dpbench.privacy.toeplitz`; `bind` finds those of least error.
    correlated: w of this step, and the buffers sum_i decays_j^i w_(t-i) [1 + d, D] float64.
    """

    decays: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    bands = None

    def bind(self, problem: Problem) -> Self:
        decays, weights = optimal(len(self.decays), problem.steps, problem.cycle)
        return replace(self, decays=decays, weights=weights)

    def advance(self, total: Tensor, stream: Stream) -> Self:
        """Algorithm 3 of McMahan et al. 2024."""
        z = draws(stream, len(total), torch.special.ndtri)
        buffers = z.new_zeros(len(self.decays), len(z))
        if self.correlated is not None:
            buffers = self.correlated[1:]
        w = z - z.new_tensor(self.weights) @ buffers
        buffers = z.new_tensor(self.decays).unsqueeze(1) * buffers + w
        return replace(self, correlated=torch.cat([w.unsqueeze(0), buffers]))

    def mechanism(self, multiplier: float) -> Mechanism:
        return ToeplitzGaussian(multiplier, self.decays, self.weights)


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
    """A local minimum of `error`, searched from the approximate square root; rounded to four
    digits, as other processors may find other last ones."""
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
