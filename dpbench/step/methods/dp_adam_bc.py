"""DP-AdamBC: Adam on private gradients, its second moment corrected for the noise."""

from dataclasses import dataclass, replace
from typing import Annotated, Self

from msgspec import Meta
from torch import Tensor

from dpbench.privacy.guarantee import POST_PROCESSED_SUMS
from dpbench.step.clipping import Bounds, ClipName, make_clip
from dpbench.step.mechanism import Method, ReleasedState, Update, checked
from dpbench.step.methods.doppler import LowPass
from dpbench.system.validate import Positive

Decay = Annotated[float, Meta(ge=0, lt=1)]


@checked
def dp_adam_bc(
    bound: Bounds, beta1: Decay, beta2: Decay, floor: Positive, clip: ClipName, style: str
) -> Method:
    """DP-Adam with bias correction for its noise; floor is gamma' (Tang et al. 2024, Algorithm 1).

    The optimiser gets Adam's direction, so it should be plain SGD, with the learning rate of Adam.
    """
    clipping, update = make_clip(clip, style, bound), adam_bc(beta1, beta2, floor)
    return Method("dp_adam_bc", clipping, POST_PROCESSED_SUMS, update=update)


@dataclass(frozen=True)
class AdamBC(Update):
    """m/sqrt(max(v, floor)), where m averages the noisy means and v their squares less the variance
    of their noise, both with Adam's weights and bias correction.

    Where that variance is the same in all steps, v is Adam's second moment less (sigma R/B)^2.
    """

    mean: LowPass
    square: LowPass
    floor: float

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        mean = self.mean.advance(noisy, deviation, theta, released)
        moment = noisy.square() - deviation**2
        square = self.square.advance(moment, deviation, theta, released)
        return replace(self, mean=mean, square=square)

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return self.mean.value / self.square.value.clamp(min=self.floor).sqrt()


def adam_bc(beta1: float, beta2: float, floor: float) -> AdamBC:
    """The update before the first step."""
    return AdamBC(LowPass((-beta1,), (1 - beta1,)), LowPass((-beta2,), (1 - beta2,)), floor)
