"""Stochastic gradient descent without privacy: the baseline that private runs are paired with."""

from dpbench.clipping import Unclipped
from dpbench.mechanism.method import NON_PRIVATE, Method, plain
from dpbench.mechanism.noise import NoNoise


def sgd() -> Method:
    """No clip and no noise."""
    return Method("sgd", "corrected", plain, Unclipped(), NoNoise(), NON_PRIVATE)
