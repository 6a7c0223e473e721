"""Gaussian noise with per-coordinate clipping, to compare with logistic noise at equal clipping."""

from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Coordinates
from dpbench.step.mechanism import Method, Sign

SUM_GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism; one example moves every coordinate of the sum by at most "
    "the bound.",
)
SIGN_GUARANTEE = Guarantee(
    "proven",
    "Upper bound: Poisson-sampled signs of Gaussian noise on all coordinates, dominated by one "
    "Gaussian mechanism for any value of the sum, up to 1% of delta.",
)


def dpsgd_coordinate(bound: float) -> Method:
    """DP-SGD with a bound on each coordinate of each gradient instead of its norm."""
    return Method("dpsgd_coordinate", Coordinates(bound), SUM_GUARANTEE)


def dp_signsgd_coordinate(bound: float) -> Method:
    """The sign of the clipped sum plus Gaussian noise; bound: G on each coordinate."""
    return Method("dp_signsgd_coordinate", Coordinates(bound), SIGN_GUARANTEE, update=Sign())
