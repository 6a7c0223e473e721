"""Stochastic gradient descent without privacy: the baseline of private runs."""

from dpbench.clipping import Unclipped
from dpbench.mechanism.method import Method
from dpbench.mechanism.noise import NoNoise
from dpbench.privacy.guarantee import NON_PRIVATE


def sgd() -> Method:
    """SGD without clipping or noise."""
    return Method("sgd", Unclipped(), NON_PRIVATE, noise=NoNoise())
