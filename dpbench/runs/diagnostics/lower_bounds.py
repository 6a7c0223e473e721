"""Lower bounds on the gap between two groups in the excess risk of clipping.

Both hold for losses that are twice continuously differentiable and convex in the parameters, and
lr <= 1/lambda_k for the largest eigenvalue lambda_k of either group's Hessian: then every v has
0 <= lr v^T H_k v <= |v|^2. Neural networks are not convex, so there they are only indications.
Notation as in `excess_risk`; the first group of an expansion is a, the second b.
"""

from collections.abc import Sequence

from torch import Tensor

from dpbench.runs.diagnostics.excess_risk import Expansion


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
    groups. In the linear term lr <g_a - g_b, g_D - c>, where the full gradient is
    g_D = p_a g_a + p_b g_b + ..., the squares p_k |g_k|^2 remain, and every inner product of two
    different vectors is bounded by x^T y >= -|x| |y|:

        <g_a - g_b, g_D> >= p_a |g_a|^2 - p_b |g_b|^2 - (p_a + p_b) |g_a| |g_b|
                            - (|g_a| + |g_b|) rest
        -<g_a - g_b, c>  >= -(|g_a| + |g_b|) |c|

    Of the curvature, c^T H_a c >= 0 and g^T H_b g >= 0 are left out, and g^T H_a g and c^T H_b c
    are at most |g|^2/lr and |c|^2/lr.

    The linear term has g_D where R^clip of a batch has g, so the bound holds in expectation, and
    for every batch after adding lr <g_a - g_b, g - g_D>, whose mean over batches is 0. It is our
    derivation from the inequality that Esipova et al. (sections 4 and 6.3) state, and not a
    transcript of their proof, which also uses C for |c|.
    """
    (p_a, p_b), (a, b) = shares, x.norm_group
    aligned = p_a * a**2 - p_b * b**2 - (p_a + p_b) * a * b
    opposed = (a + b) * (rest + x.norm_clipped)
    curvature = (x.norm_plain**2 + x.norm_clipped**2) / 2
    return x.learning_rate * (aligned - opposed - curvature)
