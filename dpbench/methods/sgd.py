"""Stochastic gradient descent without privacy: the baseline of private runs."""

from dpbench.clipping import Unclipped
from dpbench.mechanism.method import NON_PRIVATE, Method
from dpbench.mechanism.noise import NoNoise


def sgd() -> Method:
    """SGD without clipping or noise."""
    return Method("sgd", Unclipped(), NON_PRIVATE, noise=NoNoise())
