"""DPSGD-F: one clipping bound per group, derived from noisy counts of the same batch."""

from dpbench.clipping import CountQuery, Groupwise, require_style
from dpbench.mechanism.method import Method, as_published
from dpbench.privacy.guarantee import JOINT, Guarantee

NOISE_TOO_SMALL = Guarantee(
    "none",
    "As published: clips to C_k but scales the noise by C0, less than one example can move the "
    "sum, and divides by the batch's real size.",
)


def dpsgd_f(bound: float, count_noise_ratio: float, variant: str, style: str = "flat") -> Method:
    """DP-SGD with clipping bounds C_k by group (Xu et al. 2021; Esipova et al. 2023, Algorithm 3).

    count_noise_ratio is sigma_1/sigma. Corrected: noise scaled by the largest C_k over all groups,
    C_k from the mean of the groups' shares as in the authors' code. As published: noise scaled by
    C0, C_k from m/B.
    """
    require_style("flat", style, "dpsgd_f", "its bounds belong to groups, not to layers")
    published = as_published(variant)
    clip = Groupwise(
        bound,
        CountQuery(count_noise_ratio, before=True, relative=True),
        reference="batch" if published else "groups",
        sensitivity_from="base" if published else "largest",
    )
    basis = NOISE_TOO_SMALL if published else JOINT
    return Method("dpsgd_f", clip, basis, variant=variant, by_real_size=published)
