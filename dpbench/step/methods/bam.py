"""Bias-aware minimisation: prefers flat minima, where clipping introduces less bias."""

from dataclasses import dataclass

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import PROVEN
from dpbench.step.clipping import Bounds, Clip, ClipName, make_clip
from dpbench.step.gradients import Engine, Gradients, PerExampleShift
from dpbench.step.gradients.penalised import penalised, per_length
from dpbench.step.mechanism import Gradient, Method, ReleasedState, Schedule, schedule


def bam(
    bound: Bounds, lambda_: float | Schedule, clip: ClipName = "abadi", style: str = "flat"
) -> Method:
    """Each gradient at theta + lambda g_i/|g_i| (Knolle et al. 2023, Eq. 14, "BAM SAM")."""
    gradient = AscentStep(schedule("method.lambda_", lambda_))
    return Method("bam", make_clip(clip, style, bound), PROVEN, gradient)


def bam_exact(
    bound: Bounds, lambda_: float | Schedule, clip: ClipName = "abadi", style: str = "flat"
) -> Method:
    """The gradient of each L_i + lambda |g_i|, by second derivatives: the first-order expansion of
    `bam` in lambda (Knolle et al. 2023, Eq. 13)."""
    gradient = GradientPenalty(schedule("method.lambda_", lambda_))
    return Method("bam_exact", make_clip(clip, style, bound), PROVEN, gradient)


@dataclass(frozen=True)
class AscentStep(Gradient):
    """Each example's gradient after an ascent step of length lambda on that example's loss.

    An example whose gradient is zero or not finite takes no step. Losses are those at theta.
    """

    length: Schedule

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        gradients, length = engine(batch), self.length(released.progress)
        if length == 0:
            return gradients
        ascended = engine(batch, PerExampleShift(gradients, per_length(gradients.norms, length)))
        ascended.losses = gradients.losses
        return ascended


@dataclass(frozen=True)
class GradientPenalty(Gradient):
    """Each example's gradient of L_i + lambda |g_i|; losses are L_i."""

    weight: Schedule

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        weight = self.weight(released.progress)
        return penalised(engine, batch, weight) if weight else engine(batch)
