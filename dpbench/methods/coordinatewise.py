"""Gaussian noise with per-coordinate clipping, to compare with logistic noise at equal clipping."""

from dpbench.clipping import Coordinates
from dpbench.mechanism.method import Guarantee, Method, plain
from dpbench.mechanism.noise import Gaussian
from dpbench.mechanism.update import Plain, Sign, Update

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
    return _gaussian("dpsgd_coordinate", bound, SUM_GUARANTEE, Plain())


def dp_signsgd_coordinate(bound: float) -> Method:
    """The sign of the clipped sum plus Gaussian noise; bound: G on each coordinate."""
    return _gaussian("dp_signsgd_coordinate", bound, SIGN_GUARANTEE, Sign())


def _gaussian(name: str, bound: float, guarantee: Guarantee, update: Update) -> Method:
    clip = Coordinates(bound)
    return Method(name, "corrected", plain, clip, Gaussian(), guarantee, update=update)
