"""SignSGD without privacy, and with the Gaussian or the Laplace mechanism before the sign: one draw
of noise and one sign for all physical batches of a step."""

from dpbench.privacy.guarantee import NON_PRIVATE, PROVEN, Guarantee
from dpbench.step.clipping import Bounds, ClipName, Coordinates, Unclipped, make_clip
from dpbench.step.mechanism import Method, NoNoise, PerCoordinate, Sign

AFTER_GAUSSIAN = Guarantee("proven", f"{PROVEN.why} The sign is post-processing.")
AFTER_LAPLACE = Guarantee(
    "proven",
    "Upper bound: Poisson-sampled Laplace noise on every coordinate at once, all of which one "
    "example moves by the bound; the sign is post-processing.",
)


def signsgd() -> Method:
    """The sign of the mean gradient (Bernstein et al. 2018); a coordinate of 0 is not updated."""
    return Method("signsgd", Unclipped(), NON_PRIVATE, noise=NoNoise(), update=Sign(zero=0))


def dp_signsgd(bound: Bounds, clip: ClipName, style: str) -> Method:
    """The sign of the private gradient of DP-SGD; clip and style are as in `dpsgd`."""
    return Method("dp_signsgd", make_clip(clip, style, bound), AFTER_GAUSSIAN, update=Sign())


def dp_signsgd_laplace(bound: float) -> Method:
    """The sign of the sum plus Laplace noise; bound: G on each coordinate of each gradient."""
    clip, noise = Coordinates(bound), PerCoordinate("laplace")
    return Method("dp_signsgd_laplace", clip, AFTER_LAPLACE, noise=noise, update=Sign())
