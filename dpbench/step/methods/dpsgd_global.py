"""Global scaling: the same factor for all gradients, with a fixed or an adaptive bound Z."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.privacy.guarantee import JOINT
from dpbench.step.clipping import STYLES, Bound, CountQuery, Global, Layerwise, require_style
from dpbench.step.clipping.clip import MAX_BOUND, MIN_BOUND, OneBound, check_bound, ratio
from dpbench.step.mechanism import Method, as_published
from dpbench.step.methods.dpsgd import fixed_clip
from dpbench.system.validate import one_of, positive


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


@dataclass(frozen=True)
class GlobalAdapt(OneBound):
    """C/Z up to norm Z and C/norm beyond; Z follows a noisy count of norms above tau Z.

    Esipova et al. 2023, Algorithm 2 in red: Z <- Z exp(-eta + count/B), where B is the public
    expected batch size. Either factor bounds the scaled norm by C, for any Z.
    """

    strict_bound: Bound
    threshold: float
    learning_rate: float
    query: CountQuery = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("the count threshold tau", self.threshold)
        positive("the learning rate of Z", self.learning_rate)
        check_bound("the strict clipping bound Z", self.strict_bound)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return ratio(self.bound, norms.clamp(min=self.strict_bound))

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        return (norms > self.threshold * self.strict_bound).sum().view(1)

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        growth = torch.exp(counts[0] / expected_batch_size - self.learning_rate)
        # Z is a released number, so clamping it to the valid range is post-processing.
        strict_bound = (self.strict_bound * growth).clamp(MIN_BOUND, MAX_BOUND)
        return replace(self, strict_bound=strict_bound)
