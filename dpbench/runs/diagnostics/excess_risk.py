"""The excess risk of each group due to one step's clipping and noise, to second order in the step.

With g the batch gradient, c the clipped one and r = |c|/|g|, the step along g becomes the step
along c in two changes, each the difference of two losses L_k(theta - lr v) of group k:

    g --magnitude--> r g --direction--> c        (Esipova et al. 2023, eqs. 14, 15)
    g --direction--> c/r --magnitude--> c        (eqs. 16, 17: the starred terms)

Each loss is L_k - lr <g_k, v> + lr^2/2 v^T H_k v. Expectations over batches are the current batch,
the full gradient g_D of Proposition 1 is g, as in equation 5; steps are without momentum.

The lower bounds on the gap between two groups, a first and b second, hold for losses that are twice
continuously differentiable and convex in the parameters, and lr <= 1/lambda_k for the largest
eigenvalue lambda_k of either Hessian: then every v has 0 <= lr v^T H_k v <= |v|^2. Neural networks
are not convex, so there they are only indications.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Expansion(NamedTuple):
    """The quantities of one step that determine all terms. Index k: group; tensors are float64.
    learning_rate scales both gradients g (plain) and c (clipped, without noise)."""

    learning_rate: float
    norm_plain: Tensor  # |g|, scalar
    norm_clipped: Tensor  # |c|, scalar
    norm_group: Tensor  # |g_k| [K], of the gradient over all training examples of the group
    dot_plain: Tensor  # <g_k, g> [K]
    dot_clipped: Tensor  # <g_k, c> [K]
    curvature_plain: Tensor  # g^T H_k g [K]
    curvature_clipped: Tensor  # c^T H_k c [K]

    @property
    def ratio(self) -> Tensor:
        """r = |c|/|g|, scalar; NaN for an empty batch."""
        return self.norm_clipped / self.norm_plain

    @property
    def cos_plain(self) -> Tensor:
        """Cosine of the angle between g_k and g [K]."""
        return self.dot_plain / (self.norm_group * self.norm_plain)

    @property
    def cos_clipped(self) -> Tensor:
        """Cosine of the angle between g_k and c [K]."""
        return self.dot_clipped / (self.norm_group * self.norm_clipped)


def magnitude_risk(x: Expansion) -> Tensor:
    """R_k^mag [K]: the cost of stepping along r g instead of g (Proposition 2)."""
    lr, r = x.learning_rate, x.ratio
    return lr * (1 - r) * x.dot_plain + lr**2 / 2 * (r**2 - 1) * x.curvature_plain


def direction_risk(x: Expansion) -> Tensor:
    """R_k^dir [K]: the cost of stepping along c instead of r g (Proposition 2, equation 5)."""
    lr, r = x.learning_rate, x.ratio
    curvature = x.curvature_clipped - r**2 * x.curvature_plain
    return lr * (r * x.dot_plain - x.dot_clipped) + lr**2 / 2 * curvature


def magnitude_risk_starred(x: Expansion) -> Tensor:
    """R_k^mag* [K]: the cost of stepping along c instead of c/r (Proposition 2*); NaN if c is 0."""
    lr, r = x.learning_rate, x.ratio
    curvature = (1 - r**-2) * x.curvature_clipped
    return lr * (1 / r - 1) * x.dot_clipped + lr**2 / 2 * curvature


def direction_risk_starred(x: Expansion) -> Tensor:
    """R_k^dir* [K]: the cost of stepping along c/r instead of g (Proposition 2*); NaN if c is 0."""
    lr, r = x.learning_rate, x.ratio
    curvature = r**-2 * x.curvature_clipped - x.curvature_plain
    return lr * (x.dot_plain - x.dot_clipped / r) + lr**2 / 2 * curvature


def clipping_risk(x: Expansion) -> Tensor:
    """R_k^clip [K]: the cost of stepping along c instead of g (Proposition 1)."""
    lr = x.learning_rate
    curvature = x.curvature_clipped - x.curvature_plain
    return lr * (x.dot_plain - x.dot_clipped) + lr**2 / 2 * curvature


def noise_risk(learning_rate: float, traces: Tensor, noise: float) -> Tensor:
    """R_k^noise [K] = lr^2/2 Tr(H_k) noise^2, from the traces [K] (Proposition 1). noise is sigma
    C0, of the gradient *sum* as in the paper: the true cost of a step is smaller by a factor of
    B^2."""
    return learning_rate**2 / 2 * noise**2 * traces


def direction_gap_bound(x: Expansion) -> Tensor:
    """A lower bound of R_a^dir - R_b^dir, a scalar (Esipova et al. 2023, Proposition 3, eq. 12).

    lr (|g_a| |c| (cos(g_a, g) - cos(g_a, c)) - |g_b| |c| (cos(g_b, g) - cos(g_b, c)) - |c|^2). Of
    the curvature, c^T H_a c >= 0 and r^2 g^T H_b g >= 0 are left out, and r^2 g^T H_a g and
    c^T H_b c are each at most |c|^2/lr.
    """
    linear = x.ratio * x.dot_plain - x.dot_clipped
    return x.learning_rate * (linear[0] - linear[1] - x.norm_clipped**2)


def direction_gap_bound_starred(x: Expansion) -> Tensor:
    """A lower bound of R_a^dir* - R_b^dir* of the other decomposition, a scalar (Prop. 3*, A.2).

    lr (|g_a| |g| (cos(g_a, g) - cos(g_a, c)) - |g_b| |g| (cos(g_b, g) - cos(g_b, c)) - |g|^2), by
    the proof of Proposition 3 with |g| for |c|. Its last term is a square, as there: equation 18
    prints E[|g|].
    """
    linear = x.dot_plain - x.dot_clipped / x.ratio
    return x.learning_rate * (linear[0] - linear[1] - x.norm_plain**2)


def clipping_gap_bound(x: Expansion, shares: Sequence[float], rest: Tensor | float) -> Tensor:
    """A lower bound of R_a^clip - R_b^clip from gradient norms (after Tran et al. 2021): a scalar.

    shares are p_a = n_a/n and p_b = n_b/n; rest is |g_D - p_a g_a - p_b g_b|, 0 for exactly two
    groups. Every inner product of two different vectors is at least -|x| |y|, so

        <g_a - g_b, g_D> >= p_a |g_a|^2 - p_b |g_b|^2 - (p_a + p_b) |g_a| |g_b|
                            - (|g_a| + |g_b|) rest
        -<g_a - g_b, c>  >= -(|g_a| + |g_b|) |c|

    Of the curvature, c^T H_a c >= 0 and g^T H_b g >= 0 are left out, and g^T H_a g and c^T H_b c
    are at most |g|^2/lr and |c|^2/lr. As R^clip of a batch has g where this has g_D, it holds in
    expectation. It is our derivation from the inequality that Esipova et al. (sections 4 and 6.3)
    state, whose proof also uses C for |c|.
    """
    (p_a, p_b), (a, b) = shares, x.norm_group
    aligned = p_a * a**2 - p_b * b**2 - (p_a + p_b) * a * b
    opposed = (a + b) * (rest + x.norm_clipped)
    curvature = (x.norm_plain**2 + x.norm_clipped**2) / 2
    return x.learning_rate * (aligned - opposed - curvature)
