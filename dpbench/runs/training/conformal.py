"""Prediction sets for the trained model: all classes whose score is at most a private threshold.

Split conformal prediction (Vovk et al. 2005) with the score 1 - softmax probability (Sadinle et al.
2019), by a binary search with noisy counts (Romanus and Molinari 2025). Unlike theirs, each count
must exceed its level by a margin, so that the coverage is not below the one asked for: the proof is
in docs/privacy/search_and_temperature.md.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from dpbench.privacy.ledger import Step, query
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import Fraction, Positive, integer


@dataclass(frozen=True)
class PrivateConformal:
    """A threshold of scores in [0, 1], such that sets have the true class often enough.

    coverage: the least probability of that, over held-out examples, noise and a new example.
    failure: the largest probability that noise makes it too low. share: of the training examples,
    each held out independently. steps: of the binary search. Its noise is never calibrated.
    """

    coverage: Fraction
    failure: Fraction
    share: Fraction
    steps: int
    noise_multiplier: Positive

    def __post_init__(self) -> None:
        integer("conformal.steps", self.steps, most=50)
        if self.level >= 1:
            raise UserError(
                f"conformal.coverage={self.coverage:g} and failure={self.failure:g} must sum to "
                "less than 1: choose a smaller failure."
            )

    @property
    def level(self) -> float:
        """The coverage where noise does not fail, which makes up for where it does."""
        return self.coverage / (1 - self.failure)

    @property
    def sensitivity(self) -> float:
        """The most by which an example changes the excess at a threshold."""
        return max(self.level, 1 - self.level)

    @property
    def margin(self) -> float:
        """The noisy excess from which on a threshold is accepted: what all noise stays below, but
        with the probability of a failure, and what a new example needs."""
        # By the tail, as 1 - failure is 1 for a failure of 1e-17.
        tail = -math.expm1(math.log1p(-self.failure) / self.steps)
        largest = -NormalDist().inv_cdf(tail)
        return self.level + largest * self.noise_multiplier * self.sensitivity

    @property
    def least_size(self) -> int:
        """The number of held-out examples below which only the whole interval can be accepted."""
        return math.ceil(self.margin / (1 - self.level))

    @property
    def step(self) -> Step:
        """The release of one step, for the ledger."""
        return query("scores up to a threshold", self.noise_multiplier)

    def threshold(self, scores: Tensor, stream: Stream) -> float:
        """The threshold for the scores [n] held out; 1, of all classes, if none is accepted."""
        low, high = 0.0, 1.0
        for _ in range(self.steps):
            middle = (low + high) / 2
            if self.noisy_excess(scores, middle, stream) >= self.margin:
                high = middle
            else:
                low = middle
        return high

    def noisy_excess(self, scores: Tensor, threshold: float, stream: Stream) -> float:
        """How many more scores are at most the threshold than `level` of all, with noise.

        The number of scores is random, and private: an example adds 1 - level or -level.
        """
        excess = (scores <= threshold).double() - self.level
        total = excess.sum().reshape(1)
        return Gaussian().add(total, self.sensitivity, self.noise_multiplier, stream).item()
