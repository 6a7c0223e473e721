"""Likelihood ratios of releases with a canary in the data and without it."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dpbench.audit.canaries import Patterns
from dpbench.audit.inference import Scores
from dpbench.privacy.ledger import (
    Allocation,
    CoordinateMechanism,
    GaussianMechanism,
    Mechanism,
    ToeplitzGaussian,
    WholeRunGaussian,
)
from dpbench.privacy.toeplitz import column_norms


class ScoreAccumulator:
    """The scores of all canaries, accumulated over the releases of a run.

    Two attacks: the likelihood ratio, the most powerful one against independent noise, and the
    range of a canary's sums over the steps, which reveals noise that is not independent. cycle:
    that of the sampling law; the attacker does not know a canary's place in it, and averages over
    all places.
    """

    def __init__(self, patterns: Patterns, number: int, cycle: int = 1):
        self._patterns, self._steps = patterns, 0
        self._likelihood = torch.zeros(cycle, number, dtype=torch.float64)
        self._low = torch.full((number,), math.inf, dtype=torch.float64)
        self._high = -self._low

    def add(self, mechanism: Mechanism, rate: float, noisy: Tensor, gradient: Tensor) -> None:
        """Add the releases of a step; arguments as for `step_scores`."""
        sums = self._patterns.sum_along(noisy, -noisy)
        place = self._steps % len(self._likelihood)
        self._likelihood[place] += step_scores(mechanism, rate, noisy, gradient, self._patterns)
        self._steps += 1
        self._low = torch.minimum(self._low, sums)
        self._high = torch.maximum(self._high, sums)

    def attacks(self, included: Tensor) -> tuple[Scores, ...]:
        """The scores of each attack; included [m] bool."""
        attacks = (self._likelihood.logsumexp(0), self._high - self._low)
        return tuple(Scores(values.numpy(), included.numpy()) for values in attacks)


class AllocationScores(ScoreAccumulator):
    """The scores where a canary is in exactly k of the n batches of an epoch.

    An epoch's likelihood ratio is the mean, over all sets of k steps, of the product of the steps'
    ratios: their elementary symmetric polynomial of order k over binom(n, k).
    """

    def __init__(self, patterns: Patterns, number: int, law: Allocation):
        super().__init__(patterns, number)
        self._law, self._sets = law, math.log(math.comb(law.steps, law.turns))
        # Logarithms of the polynomials of orders 0 to k [k + 1, m] in the epoch's steps so far.
        self._none = torch.full((law.turns + 1, number), -math.inf, dtype=torch.float64)
        self._none[0] = 0
        self._polynomials, self._earlier = self._none, self._likelihood

    def add(self, mechanism: Mechanism, rate: float, noisy: Tensor, gradient: Tensor) -> None:
        self._likelihood = torch.zeros_like(self._earlier)
        super().add(mechanism, rate, noisy, gradient)
        orders = self._polynomials
        more = torch.logaddexp(orders[1:], orders[:-1] + self._likelihood)
        self._polynomials = torch.cat([orders[:1], more])
        if self._steps % self._law.steps == 0:
            self._earlier = self._earlier + self._polynomials[-1] - self._sets
            self._polynomials = self._none
        self._likelihood = self._earlier


class WholeRunScores(ScoreAccumulator):
    """The scores under noise that is correlated over the whole run.

    Noisy sums x + w give y = C x + z. In step t a canary moves its coordinate of y by the sum of
    C's entries for its participations so far, which depend on its place in the cycle.
    """

    _sums: Tensor | None = None
    _participations: Tensor | None = None

    def add(self, mechanism: Mechanism, rate: float, noisy: Tensor, gradient: Tensor) -> None:
        assert isinstance(mechanism, WholeRunGaussian)
        participates = torch.zeros(len(self._likelihood), 1, dtype=torch.float64)
        participates[self._steps % len(participates)] = 1
        sums = self._patterns.sum_along(noisy, -noisy).double()
        at = mechanism, self._steps
        shift, self._participations = _encoded(*at, participates, self._participations)
        y, self._sums = _encoded(*at, sums, self._sums)
        self._likelihood += shift * (2 * y - shift) / (2 * mechanism.noise_multiplier**2)
        self._steps += 1
        self._low, self._high = torch.minimum(self._low, y), torch.maximum(self._high, y)


def _encoded(
    mechanism: WholeRunGaussian, step: int, row: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The row of C x for a step's row of x, and the state after it; None before the first."""
    if isinstance(mechanism, ToeplitzGaussian):
        weights, decays = _down(row, mechanism.weights), _down(row, mechanism.decays)
        buffers = row.new_zeros(len(weights), *row.shape) if state is None else state
        return row + (weights * buffers).sum(0), decays * buffers + row
    taken = _down(row, mechanism.taken)
    before = row.new_zeros(len(taken), *row.shape) if state is None else state
    if mechanism.normalised:
        row = row / column_norms(mechanism.taken, mechanism.horizon)[step]
    encoded = row + (taken * before).sum(0)
    return encoded, torch.cat([encoded.unsqueeze(0), before])[:-1]


def _down(row: Tensor, values: Sequence[float]) -> Tensor:
    """Values along a new first dimension of a row."""
    return row.new_tensor(values).view(-1, *[1] * row.dim())


class MatchedFilter:
    """Estimates what a canary adds in each step from noisy sums with correlated noise.

    Where the noise w satisfies C w = z, the rows x + w give y = C x + z; the sum of c_k y_{t+k}
    over the rows that step t affects has the canary of step t with weight 1, and noise with the
    variance of z. It is known bands - 1 steps late.
    """

    def __init__(self, coefficients: tuple[float, ...]):
        self._coefficients = torch.tensor(coefficients, dtype=torch.float64)
        self._released: list[Tensor] = []
        self._decoded: list[Tensor] = []

    def __call__(self, noisy: Tensor) -> Tensor | None:
        """The estimate [D] for step t - bands + 1, given the noisy sum [D] of step t; None if there
        was no such step."""
        bands = len(self._coefficients)
        self._released = [noisy.double(), *self._released][:bands]
        rows = torch.stack(self._released)
        self._decoded = [*self._decoded, self._coefficients[: len(rows)] @ rows][-bands:]
        if len(self._decoded) < bands:
            return None
        return self._coefficients @ torch.stack(self._decoded)


def step_scores(
    mechanism: Mechanism, rate: float, noisy: Tensor, gradient: Tensor, patterns: Patterns
) -> Tensor:
    """Log-likelihood ratios [m] float64 of one step, for each canary separately: the others are
    neglected.

    With probability q = `rate` the canary is in the batch: log(1 - q + q exp(l)), where l is the
    ratio if it is. noisy [D]: the noisy sum in units of its sensitivity; gradient [D]: what the
    method passes to the optimiser, of which only the signs are used if only signs are released.
    """
    if isinstance(mechanism, GaussianMechanism):
        # For a shift by one unit along the pattern: (2 <x, pattern> - 1)/(2 sigma^2).
        unit = noisy.double() / math.sqrt(noisy.numel() if patterns.shared else 1)
        ratios = (2 * patterns.sum_along(unit, -unit) - 1) / (2 * mechanism.noise_multiplier**2)
    else:
        assert isinstance(mechanism, CoordinateMechanism)
        ratios = patterns.sum_along(
            *_coordinate_ratios(mechanism, noisy.double(), gradient.double())
        )
    return sampled(ratios.double(), rate)


def sampled(ratios: Tensor, rate: float) -> Tensor:
    """Log-likelihood ratios float64 for a canary that is in the batch with probability `rate`, from
    those for a canary that always is."""
    if rate == 1:
        return ratios
    return torch.logaddexp(ratios + math.log(rate), torch.full_like(ratios, math.log1p(-rate)))


LOG_DENSITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda x: F.logsigmoid(x) + F.logsigmoid(-x),
    "laplace": lambda x: -x.abs(),
}
"""By noise, up to a constant."""


def _coordinate_ratios(
    mechanism: CoordinateMechanism, noisy: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-likelihood ratios [D] for a canary that moves the coordinate up, and [D] down."""
    shift = torch.tensor(mechanism.shift, dtype=torch.float64)
    if mechanism.signed:
        log_share = torch.special.log_ndtr if mechanism.noise == "gaussian" else F.logsigmoid
        signs = gradient.sign()
        middle = math.log(0.5)
        return log_share(signs * shift) - middle, log_share(-signs * shift) - middle
    # In units of the noise's scale, in which the sensitivity is shift sqrt(D).
    at = noisy * shift * math.sqrt(mechanism.dimension)
    density = LOG_DENSITIES[mechanism.noise]
    here = density(at)
    return density(at - shift) - here, density(at + shift) - here
