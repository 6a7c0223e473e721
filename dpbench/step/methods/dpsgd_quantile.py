"""DP-SGD with a bound that tracks a quantile of the gradient norms."""

from dpbench.privacy.guarantee import JOINT
from dpbench.step.clipping import Bounds, ClipName, CountQuery, Quantile, by_norm
from dpbench.step.mechanism import Method


def dpsgd_quantile(
    bound: Bounds,
    quantile: float,
    clip_learning_rate: float,
    count_noise: float,
    clip: ClipName,
    style: str,
) -> Method:
    """Adaptive clipping (Andrew et al. 2021, Algorithm 1), by a `Quantile` for each layer if
    layerwise.

    bound is the initial R, quantile gamma, clip_learning_rate eta_C, count_noise sigma_b in
    examples, for counts of +-1/2.
    """
    query = CountQuery(2 * count_noise, before=False)
    adaptive = Quantile(by_norm(clip, style, bound), quantile, clip_learning_rate, query)
    return Method("dpsgd_quantile", adaptive, JOINT)
