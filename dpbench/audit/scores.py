"""How much likelier a release is with a canary in the data than without it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from dpbench.audit.canaries import Patterns
from dpbench.privacy.ledger import CoordinateMechanism, GaussianMechanism, Mechanism


def step_scores(
    mechanism: Mechanism, rate: float, noisy: Tensor, sent: Tensor, patterns: Patterns
) -> Tensor:
    """Log-likelihood ratios [m] float64 of one step, for each canary by itself.

    The canary is in the batch with probability q: log(1 - q + q exp(l)), where l is the ratio with
    it in the batch. noisy [D]: the noisy sum in units of its sensitivity, sent [D]: what the method
    makes of it; where only signs are released, only those are looked at. The other canaries'
    contributions are taken for none: they are on other coordinates, or small beside the noise.
    """
    if isinstance(mechanism, GaussianMechanism):
        # Of a shift by one unit along the pattern: (2 <x, pattern> - 1)/(2 sigma^2).
        unit = noisy.double() / math.sqrt(noisy.numel() if patterns.shared else 1)
        ratios = (2 * patterns.along(unit, -unit) - 1) / (2 * mechanism.noise_multiplier**2)
    else:
        assert isinstance(mechanism, CoordinateMechanism)
        ratios = patterns.along(*_coordinate_ratios(mechanism, noisy.double(), sent.double()))
    if rate == 1:
        return ratios.double()
    return torch.logaddexp(
        ratios.double() + math.log(rate),
        torch.full_like(ratios, math.log1p(-rate), dtype=torch.float64),
    )


def _coordinate_ratios(
    mechanism: CoordinateMechanism, noisy: Tensor, sent: Tensor
) -> tuple[Tensor, Tensor]:
    """By coordinate: the log-likelihood ratio if the canary moves it up, and if down."""
    shift = torch.tensor(mechanism.shift, dtype=torch.float64)
    if mechanism.signed:
        log_share = torch.special.log_ndtr if mechanism.noise == "gaussian" else F.logsigmoid
        signs = sent.sign()
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
