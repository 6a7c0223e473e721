"""The error of an estimated batch gradient, decomposed into magnitude and direction.

Theorem 1 of Knolle et al. 2023 (appendix C). With the batch gradient g and the clipped one c,

    c = a g + t,  a = <c, g>/|g|^2,  t orthogonal to g,

so that the bias c - g = (a - 1) g + t has a part along g, which only changes the length of the
step, and an orthogonal part, which changes its direction; |c - g|^2 = (a - 1)^2 |g|^2 + |t|^2.

With c the mean of the w_i g_i, a is the mean of the w_i eta_i, eta_i = <g_i, g>/|g|^2, and t that
of the w_i tau_i, tau_i = g_i - eta_i g: the paper's form without its noise (equation 24). It holds
for any c, such as the clipped mean of gradients other than the g_i. Differences from the paper:

- M_i = 1/w_i is printed max(1, C/|g_i|) in (20) and (21), which shortens the short gradients; the
  clip of its Lemma 2, and ours, has max(1, |g_i|/C). (19) has proj g_i where g_i is meant.
- (25) adds noise beta_i to every example and (26) includes it in t, which then is no longer
  orthogonal to g. Noise is added once, to the sum, and has mean 0: it is not part of the bias, nor
  of this decomposition.
- a is called the magnitude error. The error in magnitude is (a - 1) g, as in Figure 7.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Decomposition(NamedTuple):
    """Theorem 1 in scalars, float64; all but `bias` are NaN where g is 0."""

    scale: Tensor  # a
    bias: Tensor  # |c - g|
    magnitude: Tensor  # |(a - 1) g|
    direction: Tensor  # |t|


def decompose(estimate: Tensor, gradient: Tensor) -> Decomposition:
    """Splits an estimate c [D] of a gradient g [D] (Knolle et al. 2023, Theorem 1)."""
    c, g = estimate.double(), gradient.double()
    norm = torch.linalg.vector_norm
    bias = c - g
    excess = (bias @ g) / (g @ g)  # a - 1, with less cancellation
    return Decomposition(1 + excess, norm(bias), excess.abs() * norm(g), norm(bias - excess * g))


def cosine(u: Tensor, v: Tensor) -> Tensor:
    """Cosine of the angle between two vectors [D], a float64 scalar; NaN if either is 0."""
    u, v = u.double(), v.double()
    return (u @ v) / (torch.linalg.vector_norm(u) * torch.linalg.vector_norm(v))
