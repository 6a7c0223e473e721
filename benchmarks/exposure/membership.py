"""Membership inference by losses: the likelihood-ratio attack (Carlini et al. 2022, LiRA, online).

An attacker who sees only the final model compares its confidence in an example's label with that of
shadow runs that were trained with the example and without it.
"""

from typing import NamedTuple

import numpy as np

MIN_LOSS = 1e-7
"""Of a smaller loss, float32 cannot tell the confidence from 1."""

BLOCKS = 20
"""Blocks of targets that are left out in turn, for standard errors."""


class Shadows(NamedTuple):
    """Runs on random halves of the same targets: logit-scaled confidences [R, m], and whether each
    target was trained on [R, m] bool."""

    confidences: np.ndarray
    included: np.ndarray

    def runs(self, chosen: np.ndarray | slice) -> "Shadows":
        """Only the chosen runs."""
        return Shadows(self.confidences[chosen], self.included[chosen])

    def targets(self, chosen: np.ndarray) -> "Shadows":
        """Only the chosen targets."""
        return Shadows(self.confidences[:, chosen], self.included[:, chosen])


def confidences(losses: np.ndarray) -> np.ndarray:
    """log(p/(1 - p)) of the probabilities p of labels whose losses are -log p."""
    losses = np.maximum(losses, MIN_LOSS)
    return -losses - np.log(-np.expm1(-losses))


def likelihood_ratios(shadows: Shadows, attacked: np.ndarray) -> np.ndarray:
    """Scores [m] of a run's confidences [m]: log-likelihood ratios of normal laws.

    The variance is pooled over all targets, as in Carlini et al. with few shadow runs. The gain in
    a target's confidence from being trained on is shrunk towards the mean over targets by empirical
    Bayes; with many runs nothing is shrunk.
    """
    gains, variance = _gains(shadows)
    outside = (shadows.confidences - shadows.included * gains).mean(0)
    # The mean is estimated from the same runs, which adds to the variance.
    spread = variance * (1 + 1 / len(shadows.included))
    return gains * (attacked - outside - gains / 2) / spread


def _gains(shadows: Shadows) -> tuple[np.ndarray, float]:
    """The gain [m] in each confidence from being trained on, and the variance of a confidence."""
    x, included = shadows
    inside, outside = included.sum(0), (~included).sum(0)
    both = (inside > 0) & (outside > 0)
    means_in = (x * included).sum(0) / np.maximum(inside, 1)
    means_out = (x * ~included).sum(0) / np.maximum(outside, 1)
    residuals = x - np.where(included, means_in, means_out)
    freedom = included.size - (inside > 0).sum() - (outside > 0).sum()
    variance = float((residuals**2).sum() / freedom)
    raw, mean = means_in - means_out, float((means_in - means_out)[both].mean())
    noise = variance * (1 / np.maximum(inside, 1) + 1 / np.maximum(outside, 1))
    true = max(0.0, float(((raw[both] - mean) ** 2 - noise[both]).mean()))
    trust = np.where(both, true / (true + noise), 0.0)
    return mean + trust * (raw - mean), variance


def leave_one_out(shadows: Shadows) -> np.ndarray:
    """Scores [R, m] of each run, attacked with all others as shadow runs."""
    runs = np.arange(len(shadows.included))
    return np.stack(
        [likelihood_ratios(shadows.runs(runs != r), shadows.confidences[r]) for r in runs]
    )


def by_earlier_runs(shadows: Shadows) -> np.ndarray:
    """Scores [R - R//2, m] of the runs of the second half, each attacked by the runs before it.

    So no attack uses a coin that is still to be guessed, as bounds of epsilon require: two runs
    that attack each other would be right or wrong together.
    """
    half, runs = len(shadows.included) // 2, len(shadows.included)
    return np.stack(
        [
            likelihood_ratios(shadows.runs(slice(r)), shadows.confidences[r])
            for r in range(half, runs)
        ]
    )


class Exposure(NamedTuple):
    """How well scores infer membership: the area under the ROC curve with its standard error, and
    the true positive rate at a false positive rate of 1%."""

    auc: float
    error: float
    tpr: float


def exposure(scores: np.ndarray, included: np.ndarray) -> Exposure:
    """The exposure, given scores and coins [R, m], with a jackknife over blocks of targets."""
    blocks = np.arange(scores.shape[1]) % BLOCKS
    parts = [area(scores[:, blocks != b], included[:, blocks != b]) for b in range(BLOCKS)]
    error = float(np.sqrt((BLOCKS - 1) * np.var(parts)))
    threshold = np.quantile(scores[~included], 0.99)
    tpr = float((scores[included] > threshold).mean())
    return Exposure(area(scores, included), error, tpr)


def area(scores: np.ndarray, included: np.ndarray) -> float:
    """The area under the ROC curve: the probability that an included target scores above one that
    is not, where ties count half."""
    outside = np.sort(scores[~included])
    below = np.searchsorted(outside, scores[included], "left")
    up_to = np.searchsorted(outside, scores[included], "right")
    return float((below + up_to).mean() / (2 * len(outside)))
