"""DP-SGD: one clip, Gaussian noise."""

from dataclasses import replace

from dpbench.clipping import Clip, Layerwise, make_clip
from dpbench.clipping.choice import Bounds
from dpbench.mechanism.method import (
    PRIVATE_DIVISOR,
    PROVEN,
    Method,
    as_published,
    guarantee_with_clip,
    plain,
)
from dpbench.mechanism.noise import Gaussian


def dpsgd(bound: Bounds, variant: str, clip: str = "abadi", style: str = "flat") -> Method:
    """Gradients shortened to C0 (Abadi et al. 2016; Esipova et al. 2023, Algorithm 1).

    clip: another of `dpbench.clipping.CLIPS`. style: "layerwise" clips each layer's part by a bound
    of its own; bound is then that of the whole, or a list. variant: as published it divides by the
    batch's real size; layerwise, the noise of each layer is scaled by its own bound (Bu et al.
    2023, Section 4.2).
    """
    clipped = make_clip(clip, style, bound)
    if as_published(variant) and isinstance(clipped, Layerwise):
        apart = replace(clipped, apart=True)
        guarantee = guarantee_with_clip(apart, PROVEN)
        return Method("dpsgd", variant, plain, apart, Gaussian(), guarantee)
    return fixed_clip("dpsgd", clipped, variant)


def fixed_clip(name: str, clip: Clip, variant: str) -> Method:
    """DP-SGD with any clip that asks nothing; as published it divides by the batch's real size."""
    published = as_published(variant)
    return Method(
        name,
        variant,
        plain,
        clip,
        Gaussian(),
        PRIVATE_DIVISOR if published else guarantee_with_clip(clip, PROVEN),
        divide_by="actual" if published else "expected",
    )
