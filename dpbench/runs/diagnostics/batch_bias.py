"""The bias that clipping adds to the mean gradient of some examples, at the current parameters."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch, Split
from dpbench.runs.diagnostics.batch import (
    BatchGradients,
    batch_gradients,
    isolated_evaluation,
    unaugmented,
)
from dpbench.step.clipping import Clip
from dpbench.step.mechanism.step import PrivateStep


def measure(
    step: PrivateStep, parts: Iterable[Batch], groups: Sequence[int], quantiles: Sequence[float]
) -> dict[str, float]:
    """The bias that clipping adds to the mean gradient of some examples at the current parameters.

    parts: those examples in physical batches. With g_i their plain gradients, h_i the gradients
    that the method clips, w_i the clip's factors, g, h and c the means of g_i, h_i and w_i h_i, and
    p the private gradient of the previous step:

    - bias |c - g|, scale a, bias_mag |(a - 1) g| and bias_dir |t| of Theorem 1, cos_bias cos(c, g);
    - own_bias |c - h| and own_cos cos(c, h): the same against the method's gradient h;
    - norm_plain |g|, norm_own |h|, norm_clipped |c|, clipped_fraction (of the w_i, below 1);
    - cos_previous cos(p, g), for the ascent step of DP-SAT, and cos_examples, the mean of
      cos(g_i, g) over examples with a direction, for that of BAM (Figure 4);
    - norm_qQ and own_norm_qQ, for each quantile Q: those of the finite |g_i| and |h_i|.

    And NAME/k for each group k, with means over its examples. Non-finite gradients count as zero;
    undefined values are NaN. The model is in evaluation mode, so gradients differ from those of a
    step with dropout. Takes one engine pass, plus the method's additional passes.
    """
    with isolated_evaluation(step.engine.model):
        all_sums = [_Sums(step.clip) for _ in range(1 + len(groups))]
        for part in parts:
            gradients = batch_gradients(step, part)
            members = [torch.ones_like(gradients.plain_finite), *(part.groups == k for k in groups)]
            for sums, mask in zip(all_sums, members, strict=True):
                sums.add(gradients, mask)
        values = [sums.values(step.released.gradient, quantiles) for sums in all_sums]
    suffixes = ["", *(f"/{k}" for k in groups)]
    return {
        name + suffix: value.item()
        for name in values[0]
        for suffix, value in zip(suffixes, (v[name] for v in values), strict=True)
    }


class _Sums:
    """Sums over the gradients of some examples, accumulated over physical batches."""

    def __init__(self, clip: Clip):
        self._clip = clip
        self._totals: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._own_norms: list[Tensor] = []

    def add(self, gradients: BatchGradients, members: Tensor) -> None:
        """Add the examples of a part that are in members [B] bool."""
        plain_finite = gradients.plain_finite & members
        method_finite = gradients.method_finite & members
        norms, own_norms = gradients.plain.norms, gradients.method.norms
        # Where squares underflow, the norm does not determine the direction.
        directed = plain_finite & (norms > torch.finfo(norms.dtype).tiny ** 0.5)
        plain = gradients.plain.weighted_sum(plain_finite.to(norms))
        part = [
            plain,
            plain
            if gradients.method is gradients.plain
            else gradients.method.weighted_sum(method_finite.to(own_norms)),
            self._clip.reduce(gradients.method, gradients.factors_of(members)),
            # The mean of cos(g_i, g) is <mean of g_i/|g_i|, g/|g|>, in a single pass over the g_i.
            gradients.plain.weighted_sum(torch.where(directed, 1 / norms, 0)),
            *(mask.sum() for mask in (members, members & gradients.clipped_mask, directed)),
        ]
        if self._totals:
            part = [total + value for total, value in zip(self._totals, part, strict=True)]
        self._totals = part
        self._norms.append(norms[plain_finite])
        self._own_norms.append(own_norms[method_finite])

    def values(self, previous: Tensor | None, quantiles: Sequence[float]) -> dict[str, Tensor]:
        """The values that `measure` reports for these examples, by name without group."""
        plain, own, clipped, units, examples, clipped_count, directed = self._totals
        sums = (plain, own, self._clip.finish(clipped))
        g, h, c = (total.double() / examples for total in sums)
        split, norm = decompose(c, g), torch.linalg.vector_norm
        unknown = torch.tensor(math.nan)
        return {
            "bias": split.bias,
            "scale": split.scale,
            "bias_mag": split.magnitude,
            "bias_dir": split.direction,
            "cos_bias": cosine(c, g),
            "own_bias": norm(c - h),
            "own_cos": cosine(c, h),
            "norm_plain": norm(g),
            "norm_own": norm(h),
            "norm_clipped": norm(c),
            "clipped_fraction": clipped_count.double() / examples,
            "cos_previous": unknown if previous is None else cosine(previous, g),
            "cos_examples": units.double() @ g / (norm(g) * directed),
            **_quantiles("norm", torch.cat(self._norms), quantiles),
            **_quantiles("own_norm", torch.cat(self._own_norms), quantiles),
        }


def _quantiles(name: str, norms: Tensor, quantiles: Sequence[float]) -> dict[str, Tensor]:
    sorted_norms = norms.double().sort()[0]
    return {f"{name}_q{q:g}": _quantile(sorted_norms, q) for q in quantiles}


def _quantile(values: Tensor, q: float) -> Tensor:
    """A quantile of sorted values [n]; torch.quantile fails for none and for over 16 million."""
    if not len(values):
        return torch.tensor(math.nan)
    position = q * (len(values) - 1)
    below = math.floor(position)
    return torch.lerp(values[below], values[math.ceil(position)], position - below)


def bias_over_batch_sizes(
    step: PrivateStep, train: Split, sizes: Sequence[int], repeats: int, generator: torch.Generator
) -> dict[str, list]:
    """`measure` on random batches of several sizes, for Figures 5 and 6 of Knolle et al. 2023.

    One entry per batch, drawn without replacement by `generator` and not augmented: columns
    `batch_size`, `repeat` and the names of `measure`. sizes: from 1 to that of the training split.
    """
    columns: dict[str, list] = defaultdict(list)
    for size in sizes:
        for repeat in range(repeats):
            order = torch.randperm(len(train), generator=generator, device=generator.device)
            indices = order[:size].to(train.targets.device)
            batch = unaugmented(step.engine, train.at(indices))
            values = measure(step, step.physical.split(batch), [], [])
            for name, value in {"batch_size": size, "repeat": repeat, **values}.items():
                columns[name].append(value)
    return dict(columns)


class Decomposition(NamedTuple):
    """Theorem 1 in scalars, float64; all but `bias` are NaN where g is 0."""

    scale: Tensor  # a
    bias: Tensor  # |c - g|
    magnitude: Tensor  # |(a - 1) g|
    direction: Tensor  # |t|


def decompose(estimate: Tensor, gradient: Tensor) -> Decomposition:
    """Splits an estimate c [D] of a gradient g [D] into magnitude and direction.

    Theorem 1 of Knolle et al. 2023 (appendix C):

        c = a g + t,  a = <c, g>/|g|^2,  t orthogonal to g,

    so that the bias c - g = (a - 1) g + t has a part along g, which only changes the length of the
    step, and an orthogonal part, which changes its direction; |c - g|^2 = (a - 1)^2 |g|^2 + |t|^2.

    With c the mean of the w_i g_i, a is the mean of the w_i eta_i, eta_i = <g_i, g>/|g|^2, and t
    that of the w_i tau_i, tau_i = g_i - eta_i g: the paper's form without its noise (equation 24).
    It holds for any c, such as the clipped mean of gradients other than the g_i. Differences:

    - M_i = 1/w_i is printed max(1, C/|g_i|) in (20) and (21), which shortens the short gradients;
      the clip of its Lemma 2, and ours, has max(1, |g_i|/C). (19) has proj g_i where g_i is meant.
    - (25) adds noise beta_i to every example and (26) includes it in t, which then is no longer
      orthogonal to g. Noise is added once, to the sum, and has mean 0: it is not part of the bias.
    - a is called the magnitude error. The error in magnitude is (a - 1) g, as in Figure 7.
    """
    c, g = estimate.double(), gradient.double()
    norm = torch.linalg.vector_norm
    bias = c - g
    excess = (bias @ g) / (g @ g)  # a - 1, with less cancellation
    return Decomposition(1 + excess, norm(bias), excess.abs() * norm(g), norm(bias - excess * g))


def cosine(u: Tensor, v: Tensor) -> Tensor:
    """Cosine of the angle between two vectors [D], a float64 scalar; NaN if either is 0."""
    u, v = u.double(), v.double()
    return (u @ v) / (torch.linalg.vector_norm(u) * torch.linalg.vector_norm(v))
