"""DP-MF: Gaussian noise that later steps partly cancel, by a banded matrix factorisation."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.privacy.guarantee import Guarantee
from dpbench.privacy.ledger import GaussianMechanism, Mechanism
from dpbench.step.clipping import Bounds, ClipName, make_clip
from dpbench.step.mechanism import CorrelatedGaussian, Method, Stream, checked
from dpbench.step.mechanism.draws import draws
from dpbench.system.errors import UserError

Bands = Annotated[int, Meta(ge=1, le=4096)]

GUARANTEE = Guarantee(
    "proven",
    "Noise is correlated over no more steps than lie between two batches that an example may be "
    "in, so each of its turns is one Poisson-sampled Gaussian mechanism.",
)


@checked
def dp_mf(bound: Bounds, bands: Bands, clip: ClipName, style: str) -> Method:
    """DP-SGD with correlated noise C^-1 z, where C has `bands` bands (Choquette-Choo et al. 2023).

    C is the banded square root of the prefix sum (Kalinin and Lampert 2024). Batches are cyclic
    Poisson samples, with a cycle of `bands` steps. The proof is on the card.
    """
    noise = BandedGaussian(coefficients=banded_square_root(bands))
    return Method("dp_mf", make_clip(clip, style, bound), GUARANTEE, noise=noise)


def banded_square_root(bands: int) -> tuple[float, ...]:
    """The first coefficients of (1 - z)^(-1/2), scaled to norm 1: 1, 1/2, 3/8, 5/16, ...

    With all T coefficients, C C is the prefix sum (Fichtenberger et al. 2023).
    """
    coefficients = torch.ones(bands, dtype=torch.float64)
    k = torch.arange(1, bands, dtype=torch.float64)
    coefficients[1:] = torch.cumprod((2 * k - 1) / (2 * k), 0)
    return tuple((coefficients / coefficients.norm()).tolist())


@dataclass(frozen=True)
class BandedGaussian(CorrelatedGaussian):
    """Correlated noise with a banded C.

    coefficients: c_0, c_1, ... of C, the same for all columns, with norm 1. correlated: w of this
    step and the bands - 2 before it, newest first.
    """

    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        norm = math.hypot(*self.coefficients)
        if norm > 1 + 1e-12:
            raise UserError(
                f"the coefficients of C must have a norm of 1 at most, and have {norm:.6g}: divide "
                "them by it."
            )

    @property
    def bands(self) -> int:  # type: ignore[override]
        return len(self.coefficients)

    def advance(self, total: Tensor, stream: Stream) -> Self:
        z = draws(stream, len(total), torch.special.ndtri)
        past = z.new_zeros(0, len(z)) if self.correlated is None else self.correlated
        past = past[: self.bands - 1]
        first, *others = self.coefficients
        w = (z - z.new_tensor(others[: len(past)]) @ past) / first
        return replace(self, correlated=torch.cat([w.unsqueeze(0), past])[: max(self.bands - 1, 1)])

    def mechanism(self, multiplier: float) -> Mechanism:
        return GaussianMechanism(multiplier, bands=self.bands)
