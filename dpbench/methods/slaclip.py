"""SlaClip: DP-SGD with a bound that adapts to the slack of clipped gradients, at no cost."""

from dpbench.clipping import Slack
from dpbench.mechanism.method import Method
from dpbench.privacy.guarantee import Guarantee

ONE_RELEASE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism: an example's clipped gradient and slack are one vector, "
    "whose norm is at most the bound.",
)


def slaclip(
    bound: float,
    slots: int,
    clip_learning_rate: float,
    beta: float,
    least: float,
    most: float,
) -> Method:
    """DP-SGD with the clip `Slack` (Zou et al. 2026, SlaClip).

    bound is the initial R, clip_learning_rate eta.
    """
    clip = Slack(bound, slots, clip_learning_rate, beta, least, most)
    return Method("slaclip", clip, ONE_RELEASE)
