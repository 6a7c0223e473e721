"""SGD with the logistic mechanism, applied to the gradient or to its sign."""

from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Coordinates
from dpbench.step.mechanism import Method, PerCoordinate, Plain, Sign, Update

SUM_GUARANTEE = Guarantee(
    "proven",
    "Upper bound: Poisson-sampled logistic noise on every coordinate at once, all of which one "
    "example moves by the bound.",
)
SIGN_GUARANTEE = Guarantee(
    "proven",
    "Upper bound: Poisson-sampled signs of logistic noise on every coordinate at once, for the "
    "worst place of the sum in each step.",
)


def dp_losgd(bound: float) -> Method:
    """DP-SGD with logistic noise; bound: G on each coordinate of each gradient (the note)."""
    return _logistic("dp_losgd", bound, SUM_GUARANTEE, Plain())


def dp_signlosgd(bound: float) -> Method:
    """The sign of the sum plus logistic noise: the exponential mechanism over signs (the note).

    With scale s it outputs r_i = 1 with probability sigmoid(S_i/s), like the exponential mechanism
    with utility r.g (the note prints -r.g) and the note's sigma = 1/(2s). bound: G on each
    coordinate of each gradient.
    """
    return _logistic("dp_signlosgd", bound, SIGN_GUARANTEE, Sign())


def _logistic(name: str, bound: float, guarantee: Guarantee, update: Update) -> Method:
    clip, noise = Coordinates(bound), PerCoordinate("logistic")
    return Method(name, clip, guarantee, noise=noise, update=update, own_accountant="note")
