"""Global scaling: the same factor for all gradients, with a fixed or an adaptive bound Z."""

from dpbench.clipping import STYLES, CountQuery, Global, GlobalAdapt, Layerwise, require_style
from dpbench.mechanism.method import Method, as_published
from dpbench.methods.dpsgd import fixed_clip
from dpbench.privacy.guarantee import JOINT
from dpbench.system.validate import one_of


def dpsgd_global(bound: float, strict_bound: float, variant: str, style: str = "flat") -> Method:
    """One scale for all gradients up to Z (Bu et al. 2021; Esipova et al. 2023, Algorithm 2).

    style: "layerwise" drops a layer's part beyond Z/sqrt(L), with a bound of C0/sqrt(L) per layer.
    """
    one_of("method.style", style, STYLES)
    clip = Global(bound, strict_bound)
    return fixed_clip("dpsgd_global", Layerwise(clip) if style == "layerwise" else clip, variant)


def dpsgd_global_adapt(
    bound: float,
    strict_bound: float,
    threshold: float,
    clip_learning_rate: float,
    count_noise_multiplier: float,
    variant: str,
    style: str = "flat",
) -> Method:
    """Global scaling with an adaptive Z (Esipova et al. 2023, red parts of Algorithm 2).

    strict_bound is the initial Z, threshold tau, clip_learning_rate eta_Z, count_noise_multiplier
    sigma_2 in examples. As published, both B are the batch's real size.
    """
    require_style("flat", style, "dpsgd_global_adapt", "Z is a bound on whole gradients")
    published = as_published(variant)
    query = CountQuery(count_noise_multiplier, before=False)
    clip = GlobalAdapt(bound, strict_bound, threshold, clip_learning_rate, query)
    return Method("dpsgd_global_adapt", clip, JOINT, variant=variant, by_real_size=published)
