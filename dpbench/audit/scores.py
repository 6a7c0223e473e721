"""Likelihood ratios of releases with a canary in the data and without it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from dpbench.audit.canaries import Patterns
from dpbench.audit.inference import Scores
from dpbench.privacy.ledger import CoordinateMechanism, GaussianMechanism, Mechanism


class ScoreAccumulator:
    """The scores of all canaries, accumulated over the releases of a run.

    Two attacks: the likelihood ratio, the most powerful one against independent noise, and the
    range of a canary's sums over the steps, which reveals noise that is not independent.
    """

    def __init__(self, patterns: Patterns, number: int):
        self._patterns = patterns
        self._likelihood = torch.zeros(number, dtype=torch.float64)
        self._low = torch.full_like(self._likelihood, math.inf)
        self._high = torch.full_like(self._likelihood, -math.inf)

    def add(self, mechanism: Mechanism, rate: float, noisy: Tensor, gradient: Tensor) -> None:
        """Add the releases of a step; arguments as for `step_scores`."""
        sums = self._patterns.sum_along(noisy, -noisy)
        self._likelihood += step_scores(mechanism, rate, noisy, gradient, self._patterns)
        self._low = torch.minimum(self._low, sums)
        self._high = torch.maximum(self._high, sums)

    def attacks(self, included: Tensor) -> tuple[Scores, ...]:
        """The scores by attack; included [m] bool."""
        attacks = (self._likelihood, self._high - self._low)
        return tuple(Scores(values.numpy(), included.numpy()) for values in attacks)


def step_scores(
    mechanism: Mechanism, rate: float, noisy: Tensor, gradient: Tensor, patterns: Patterns
) -> Tensor:
    """Log-likelihood ratios [m] float64 of one step, for each canary separately.

    The canary is in the batch with probability q: log(1 - q + q exp(l)), where l is the ratio with
    it in the batch. noisy [D]: the noisy sum in units of its sensitivity; gradient [D]: what
    the method passes to the optimiser, whose signs are used where only signs are released. Other
    canaries are neglected: they are on other coordinates, or small compared with the noise.
    """
    if isinstance(mechanism, GaussianMechanism):
        # Of a shift by one unit along the pattern: (2 <x, pattern> - 1)/(2 sigma^2).
        unit = noisy.double() / math.sqrt(noisy.numel() if patterns.shared else 1)
        ratios = (2 * patterns.sum_along(unit, -unit) - 1) / (2 * mechanism.noise_multiplier**2)
    else:
        assert isinstance(mechanism, CoordinateMechanism)
        ratios = patterns.sum_along(
            *_coordinate_ratios(mechanism, noisy.double(), gradient.double())
        )
    return sampled(ratios.double(), rate)


def sampled(ratios: Tensor, rate: float) -> Tensor:
    """Log-likelihood ratios float64 of releases, from those with the canary in the batch, where it
    is there with probability `rate`."""
    if rate == 1:
        return ratios
    return torch.logaddexp(ratios + math.log(rate), torch.full_like(ratios, math.log1p(-rate)))


def _coordinate_ratios(
    mechanism: CoordinateMechanism, noisy: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """By coordinate: the log-likelihood ratios for a canary that moves it up, and down."""
    shift = torch.tensor(mechanism.shift, dtype=torch.float64)
    if mechanism.signed:
        log_share = torch.special.log_ndtr if mechanism.noise == "gaussian" else F.logsigmoid
        signs = gradient.sign()
        middle = math.log(0.5)
        return log_share(signs * shift) - middle, log_share(-signs * shift) - middle
    # In units of the noise's scale, of which the sensitivity is shift sqrt(D).
    at = noisy * shift * math.sqrt(mechanism.dimension)
    density = _logistic if mechanism.noise == "logistic" else _laplace
    here = density(at)
    return density(at - shift) - here, density(at + shift) - here


def _logistic(x: Tensor) -> Tensor:
    return F.logsigmoid(x) + F.logsigmoid(-x)


def _laplace(x: Tensor) -> Tensor:
    return -x.abs()
