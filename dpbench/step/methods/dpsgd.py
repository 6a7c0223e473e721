"""DP-SGD: one clip, Gaussian noise."""

from dataclasses import replace

from dpbench.privacy.guarantee import PROVEN
from dpbench.step.clipping import Bounds, Clip, ClipName, Layerwise, make_clip
from dpbench.step.mechanism import Method, as_published


def dpsgd(bound: Bounds, variant: str, clip: ClipName = "abadi", style: str = "flat") -> Method:
    """Gradients clipped to norm C0 (Abadi et al. 2016; Esipova et al. 2023, Algorithm 1).

    clip: one of `dpbench.clipping.CLIPS`. style: "layerwise" clips each layer's part separately;
    bound is then the total R, or a list with one bound per layer. variant: as published, flat clips
    divide by the batch's real size, and layerwise ones scale each layer's noise by that layer's
    bound (Bu et al. 2023, Section 4.2).
    """
    clipping = make_clip(clip, style, bound)
    if as_published(variant) and isinstance(clipping, Layerwise):
        return Method("dpsgd", replace(clipping, separate_noise=True), PROVEN, variant=variant)
    return fixed_clip("dpsgd", clipping, variant)


def fixed_clip(name: str, clip: Clip, variant: str) -> Method:
    """DP-SGD with a clip that makes no query; as published it divides by the batch's real size."""
    return Method(name, clip, PROVEN, variant=variant, by_real_size=as_published(variant))
