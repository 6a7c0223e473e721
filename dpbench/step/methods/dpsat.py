"""DP-SAT: sharpness-aware training with the ascent direction from an earlier release."""

from dataclasses import dataclass

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Bounds, Clip, ClipName, make_clip
from dpbench.step.gradients import Engine, Gradients
from dpbench.step.gradients.penalised import per_length
from dpbench.step.mechanism import Gradient, Method, ReleasedState, Schedule, schedule

GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism with a stated sensitivity; the shift is made of gradients "
    "that were released before.",
)


def dpsat(
    bound: Bounds, lambda_: float | Schedule, clip: ClipName = "abadi", style: str = "flat"
) -> Method:
    """All gradients at theta + lambda g/|g|, g the previous private gradient (Park et al. 2023)."""
    gradient = PreviousGradientAscent(schedule("method.lambda_", lambda_))
    return Method("dpsat", make_clip(clip, style, bound), GUARANTEE, gradient)


@dataclass(frozen=True)
class PreviousGradientAscent(Gradient):
    """Gradients and losses after an ascent step of length lambda along the last private gradient;
    at theta in the first step."""

    length: Schedule

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        length = self.length(released.progress)
        if released.gradient is None or length == 0:
            return engine(batch)
        return engine(batch, released.gradient * per_length(released.gradient.norm(), length))
