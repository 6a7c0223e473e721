"""DiceSGD: DP-SGD with error feedback, against the bias of clipping."""

from dpbench.clipping import Abadi, ErrorFeedback
from dpbench.mechanism.method import Method
from dpbench.privacy.guarantee import Guarantee

GUARANTEE = Guarantee(
    "proven",
    "Each step is a Poisson-sampled Gaussian mechanism for the gradients and, without sampling, "
    "one for the error fed back, which an example may have moved in any earlier step.",
)


def dicesgd(bound: float, error_bound: float, account_share: float) -> Method:
    """Clipped gradients plus the clipped error of earlier steps (Zhang et al. 2024).

    bound is C1 and error_bound C2, both of sums. account_share: the share s of the noise's variance
    that accounting assigns to the error; it affects only epsilon.

    Privacy: the noise is the sum of two, with the shares 1 - s and s of its variance; releasing the
    noisy gradients and the noisy error separately reveals no less. Let D have one example more than
    D'. Fix the other examples' batches; c_t says whether the example is in batch t. Given all
    earlier releases, its gradient is fixed, and clip(e_t, C2) is a function of c_1, ..., c_{t-1}
    under D. So the density of all releases under D over that under D' is an average over c of
    prod_t L_t(c_t) M_t(c_1, ..., c_{t-1}), where L_t is the ratio of a Gaussian mechanism with
    sensitivity C1 and M_t that of a shift by at most 2 C2. A divergence is the mean of a convex
    function of that ratio under D'. Going backwards in t: by Jensen's inequality, the average over
    the c inside M_t is taken out of the function, and the mean over release t is largest for the
    longest shift, which does not depend on c; c_t is independent of the others, so the average over
    it is the ratio of a Poisson-sampled mechanism. What is left is the divergence of T sampled
    mechanisms of sensitivity C1 and T others, without sampling, of sensitivity 2 C2; all
    f-divergences and so RDP and PLD are bounded, in both directions.
    """
    return Method("dicesgd", ErrorFeedback(Abadi(bound), error_bound, account_share), GUARANTEE)
