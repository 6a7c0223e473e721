"""DOPPLER: a low-pass filter of the released gradients."""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from dpbench.clipping import Bounds, make_clip
from dpbench.mechanism.low_pass import LowPass
from dpbench.mechanism.method import Method
from dpbench.mechanism.update import Update
from dpbench.privacy.guarantee import POST_PROCESSED_SUMS


def doppler(bound: Bounds, a: list[float], b: list[float], clip: str, style: str) -> Method:
    """DP-SGD with a low-pass filter of the noisy means (Zhang et al. 2024, DOPPLER).

    a, b: the coefficients of `LowPass`. bound, clip and style as for `dpsgd`.
    """
    update = LowPassUpdate(LowPass(tuple(a), tuple(b)))
    return Method("doppler", make_clip(clip, style, bound), POST_PROCESSED_SUMS, update=update)


@dataclass(frozen=True)
class LowPassUpdate(Update):
    """The low-pass filter of the noisy means."""

    low_pass: LowPass

    def advance(self, noisy: Tensor, deviation: float | Tensor, theta: Tensor) -> Self:
        return replace(self, low_pass=self.low_pass.advance(noisy))

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return self.low_pass.value
