"""DP-MF with noise that cancels part of the last steps' noise: a banded inverse of C."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.privacy.ledger import InverseToeplitzGaussian, Mechanism
from dpbench.privacy.toeplitz import column_norms
from dpbench.step.clipping import Bounds, ClipName, Problem, make_clip
from dpbench.step.mechanism import CorrelatedGaussian, Method, Stream, checked
from dpbench.step.mechanism.draws import draws
from dpbench.step.methods.dp_mf_blt import GUARANTEE

Share = Annotated[float, Meta(ge=0, lt=1)]
Bands = Annotated[int, Meta(ge=1, le=64)]


@checked
def dp_lambda_cgd(bound: Bounds, lambda_: Share, clip: ClipName, style: str) -> Method:
    """DP-SGD with noise d_t (z_t - lambda z_(t-1)) (Kalinin et al. 2026).

    d_t is the norm of column t of the matrix C whose inverse gives z_t - lambda z_(t-1), so that
    the columns of the matrix in use have norm 1. Batches and the proof are those of `dp_mf_blt`.
    """
    noise = InverseBandedGaussian(taken=(lambda_,), normalised=True)
    return Method("dp_lambda_cgd", make_clip(clip, style, bound), GUARANTEE, noise=noise)


@checked
def dp_mf_bisr(bound: Bounds, bands: Bands, clip: ClipName, style: str) -> Method:
    """DP-SGD with noise C^-1 z by the banded inverse square root, the first `bands` coefficients of
    (1 - x)^(1/2), without normalised columns (Kalinin et al. 2025)."""
    noise = InverseBandedGaussian(taken=inverse_square_root(bands))
    return Method("dp_mf_bisr", make_clip(clip, style, bound), GUARANTEE, noise=noise)


def inverse_square_root(bands: int) -> tuple[float, ...]:
    """Minus the coefficients of (1 - x)^(1/2) after the first: 1/2, 1/8, 1/16, 5/128, ..."""
    k = torch.arange(1, bands, dtype=torch.float64)
    return tuple((torch.cumprod((k - 1.5).abs() / k, 0)).tolist())


@dataclass(frozen=True)
class InverseBandedGaussian(CorrelatedGaussian):
    """Correlated noise with a banded C^-1, 1 on its diagonal and -taken_i on the i-th one below.

    correlated: w of this step, and the draws of this step and the last ones before it, newest
    first. norms: of C's columns from the next step on, if they are normalised; float64.
    """

    taken: tuple[float, ...] = ()
    normalised: bool = False
    horizon: int = 1
    norms: Tensor | None = field(default=None, compare=False, repr=False)
    bands = None

    def bind(self, problem: Problem) -> Self:
        return replace(self, horizon=problem.steps)

    def advance(self, total: Tensor, stream: Stream) -> Self:
        z = draws(stream, len(total), torch.special.ndtri)
        past = z.new_zeros(0, len(z)) if self.correlated is None else self.correlated[1:]
        past = past[: len(self.taken)]
        w = z - z.new_tensor(self.taken[: len(past)]) @ past
        norms = self.norms
        if self.normalised:
            if norms is None:
                norms = z.new_tensor(column_norms(self.taken, self.horizon).copy())
            w, norms = w * norms[0], norms[1:]
        rows = torch.cat([w.unsqueeze(0), z.unsqueeze(0), past])[: 1 + len(self.taken)]
        return replace(self, correlated=rows, norms=norms)

    def mechanism(self, multiplier: float) -> Mechanism:
        return InverseToeplitzGaussian(multiplier, self.taken, self.normalised, self.horizon)
