"""Stochastic gradient descent without privacy: the baseline of private runs."""

from dpbench.privacy.guarantee import NON_PRIVATE
from dpbench.step.clipping import Unclipped
from dpbench.step.mechanism import Method, NoNoise


def sgd() -> Method:
    """SGD without clipping or noise."""
    return Method("sgd", Unclipped(), NON_PRIVATE, noise=NoNoise())
