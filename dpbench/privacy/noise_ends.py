"""Where noise in floating point ends, and how likely it is that an example shows there.

An output that noise alone cannot reach proves that the example is in the data (Mironov 2012).
"""

import functools
import math

from scipy.special import ndtr

from dpbench.privacy.entries import Entry, joint_entries
from dpbench.privacy.ledger import CoordinateMechanism, Ledger

GAUSSIAN_END, LOGISTIC_END = 10.5, 55.0
"""Where noise ends, in standard deviations of a Gaussian and scales of logistic and Laplace noise:
up to here thousands of the draws of `dpbench.mechanism.noise` fall on each point of its grid."""


@functools.lru_cache(maxsize=4096)
def unhidden(ledger: Ledger) -> float:
    """The probability that noise as it is drawn does not hide an example, over the whole ledger.

    Noise in floating point ends, at a. An example that moves a sum by s is seen where the output is
    one that noise alone cannot reach: with probability Phi(-(a - s)) for a Gaussian if all of s is
    in one coordinate, in each step that the example is in; s is what its gradient and what it left
    in earlier steps move together, where both are hidden by one draw. Coordinates that it hardly
    moves are neglected: s phi(a) sqrt(D) for all together, 1e-20 for 1e9 of them. Raises
    Unaccountable as `joint_entries` does.
    """
    entries = joint_entries(ledger)
    return sum(entry.rate * entry.slots * entry.times * _beyond(entry) for entry in entries)


def _beyond(entry: Entry) -> float:
    if isinstance(entry.joint, CoordinateMechanism):
        shift, size = entry.joint.shift, entry.joint.dimension
        if entry.joint.noise == "gaussian":
            return min(1.0, size * float(ndtr(shift - GAUSSIAN_END)))
        return min(1.0, size * math.exp(min(shift - LOGISTIC_END, 0.0)))
    if entry.joint == 0:
        return 0.0  # an exact release, whose epsilon is infinite anyway
    # What the example is moved by together, as both shares of the noise are one draw: with shares
    # s and 1 - s of its variance, sqrt(1 - s) x + sqrt(s) y <= hypot(x, y).
    shift = math.hypot(1 / entry.joint, 1 / entry.carried) if entry.carried else math.inf
    beyond = float(ndtr(shift - GAUSSIAN_END))
    # In a step that is cut it replaces another example, and moves the sum by twice as much.
    return beyond + entry.cut * float(ndtr(2 / entry.joint - GAUSSIAN_END))
