"""DOPPLER: a low-pass filter of the released gradients."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from scipy import signal
from torch import Tensor

from dpbench.privacy.guarantee import POST_PROCESSED_SUMS
from dpbench.step.clipping import Bounds, ClipName, make_clip
from dpbench.step.mechanism import Method, ReleasedState, Update
from dpbench.system.errors import UserError

ONES = np.ones(1000)
"""The constant 1, for so many steps."""


def doppler(bound: Bounds, a: list[float], b: list[float], clip: ClipName, style: str) -> Method:
    """DP-SGD with a `LowPass` filter of the noisy means (Zhang et al. 2024, DOPPLER)."""
    clipping, update = make_clip(clip, style, bound), LowPass(tuple(a), tuple(b))
    return Method("doppler", clipping, POST_PROCESSED_SUMS, update=update)


@dataclass(frozen=True)
class LowPass(Update):
    """The filter m_t = -sum_{k>=1} a_k m_{t-k} + sum_{k>=0} b_k x_{t-k}, divided by c_t.

    c_t is the same filter of the constant 1 from step 1 on, which is then its own filtered value.
    a = (-beta,), b = (1 - beta,) is Adam's average with bias correction. inputs, outputs: the
    latest ones, newest first, with the filter of 1 as an additional coordinate [., D + 1].
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    inputs: Tensor | None = field(default=None, compare=False)
    outputs: Tensor | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.inputs is None and not _is_low_pass(self.a, self.b):
            raise UserError(
                "method.a and method.b do not define a low-pass filter: the poles, which are the "
                "roots of 1 + a_1/z + a_2/z^2 + ..., must lie inside the unit circle, and the "
                "filter of the constant 1 must stay positive."
            )

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        inputs = _newest_first(torch.cat([noisy, noisy.new_ones(1)]), self.inputs, len(self.b))
        past = inputs.new_zeros(1, inputs.shape[1]) if self.outputs is None else self.outputs
        output = inputs.new_tensor(self.b[: len(inputs)]) @ inputs
        output = output - past.new_tensor(self.a[: len(past)]) @ past[: len(self.a)]
        return replace(self, inputs=inputs, outputs=_newest_first(output, past, len(self.a)))

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return self.value

    @property
    def value(self) -> Tensor:
        """The filtered input [D]."""
        assert self.outputs is not None
        return self.outputs[0, :-1] / self.outputs[0, -1]


def _is_low_pass(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    poles = np.abs(np.roots([1.0, *a]))
    return bool(b) and poles.max(initial=0) < 1 and min(signal.lfilter(b, [1, *a], ONES)) > 0


def _newest_first(new: Tensor, past: Tensor | None, number: int) -> Tensor:
    """The new row before the past ones: at most `number` rows, and always the new one."""
    rows = new.unsqueeze(0)
    return rows if past is None else torch.cat([rows, past])[: max(number, 1)]
