"""DP-SGD with a bound that tracks a quantile of the gradient norms, but never falls too low."""

from dpbench.privacy.guarantee import JOINT
from dpbench.step.clipping import Bounds, ClipName, CountQuery, NormalisedQuantile, by_norm
from dpbench.step.mechanism import Method
from dpbench.system.errors import UserError


def dpsgd_bounded(
    bound: Bounds,
    lower_bound: float,
    quantile: float,
    threshold: float,
    clip_learning_rate: float,
    count_noise: float,
    clip: ClipName,
    style: str,
) -> Method:
    """Bounded adaptive clipping: R <- max(C_LB, R exp(-eta_C (b - gamma))) (Zhao et al. 2025).

    As `dpsgd_quantile`; lower_bound is C_LB, threshold tau: b is the noisy fraction of norms up to
    tau R. As in the authors' code, sums are in units of R.
    """
    clipping = by_norm(clip, style, bound)
    start = float(clipping.sensitivity.bound)
    if start < lower_bound:
        raise UserError(
            f"method.bound={start:g}, where R starts, is below "
            f"method.lower_bound={lower_bound:g}: make one of them the other."
        )
    query = CountQuery(2 * count_noise, before=False)
    adaptive = NormalisedQuantile(
        clipping, quantile, clip_learning_rate, query, threshold, lower_bound
    )
    return Method("dpsgd_bounded", adaptive, JOINT)
