"""DP-SGD: one clip, Gaussian noise."""

from dpbench.clipping import Abadi, Clip
from dpbench.methods.method import PRIVATE_DIVISOR, PROVEN, Method, as_published, plain
from dpbench.noise import Gaussian


def dpsgd(bound: float, variant: str) -> Method:
    """Gradients shortened to C0 (Abadi et al. 2016; Esipova et al. 2023, Algorithm 1)."""
    return fixed_clip("dpsgd", Abadi(bound), variant)


def fixed_clip(name: str, clip: Clip, variant: str) -> Method:
    """DP-SGD with any clip that asks nothing; as published it divides by the batch's real size."""
    published = as_published(variant)
    return Method(
        name,
        variant,
        plain,
        clip,
        Gaussian(),
        PRIVATE_DIVISOR if published else PROVEN,
        divide_by="actual" if published else "expected",
    )
