"""The Gaussian central limit of Bu et al. 2020, as in Opacus to the bit.

Opacus takes a second or two to import, and every run states this epsilon.
"""

import numpy as np
from scipy import optimize
from scipy.special import ndtr


def poisson_mu(rate: float, sigma: float, steps: int) -> float:
    """The mu of a number of steps on Poisson samples (Bu et al. 2020, Corollary 4)."""
    return np.sqrt(np.exp(sigma**-2) - 1) * np.sqrt(steps) * rate


def limit_epsilon(mu: float, delta: float) -> float:
    """The epsilon of mu-GDP at delta (Dong et al. 2022, Corollary 2.13); ValueError above 500."""

    def excess(epsilon: float) -> float:
        return ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2) - delta

    return optimize.root_scalar(excess, bracket=[0, 500], method="brentq").root
