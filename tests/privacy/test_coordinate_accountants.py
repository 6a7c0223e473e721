"""Epsilons of noise on each coordinate: against simulation, dp_accounting and each other."""

import math

import numpy as np
import pytest
from dp_accounting import LaplaceDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from scipy.special import expit

from dpbench.privacy.accountants import SPENT, lower_bound, note, pld, rdp
from dpbench.privacy.calibrate import calibrate
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)

DELTA = 1e-5


def noise(shift: float, dimension: int, law: str = "logistic", signed: bool = False):
    return CoordinateMechanism(law, 1 / (shift * dimension**0.5), dimension, signed)


def ledger(mechanism, rate: float = 0.02, steps: int = 200) -> Ledger:
    return Ledger().after(Step(Poisson(rate), (Release("sum", mechanism),)), steps)


EVERY = {
    "logistic": noise(0.1, 100),
    "laplace": noise(0.05, 100, "laplace"),
    "sign": noise(0.1, 100, signed=True),
}
every = pytest.mark.parametrize("mechanism", EVERY.values(), ids=EVERY)


# Against simulation: both directions, sampling and composition.


def sampled_losses(mechanism, rate: float, steps: int, runs: int, removing: bool):
    """Losses [runs] of `steps` sampled releases at the symmetric place, by their definition."""
    draw = np.random.default_rng(0)
    d, shift = mechanism.dimension, mechanism.shift
    inside = (draw.random((runs, steps)) < rate) & removing
    place = -shift / 2 + shift * inside[..., None]
    x = draw.logistic(place, 1, (runs, steps, d))

    def density(at: float) -> np.ndarray:
        if mechanism.signed:
            return np.log(expit(np.where(x > 0, at, -at))).sum(-1)
        z = x - at
        return (-z - 2 * np.logaddexp(0, -z)).sum(-1)

    without, with_it = density(-shift / 2), density(shift / 2)
    mixed = np.logaddexp(math.log1p(-rate) + without, math.log(rate) + with_it)
    return ((mixed - without) * (1 if removing else -1)).sum(-1)


def simulated(mechanism, epsilon: float, removing: bool) -> tuple[float, float]:
    """The delta of five releases at rate 0.3, and its standard error."""
    losses = sampled_losses(mechanism, 0.3, 5, 40_000, removing)
    over = np.clip(-np.expm1(epsilon - losses), 0, None)
    return over.mean(), over.std() / 200


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-1, 1e-2])
@pytest.mark.parametrize(
    ("spend", "signed"), [(pld, False), (lower_bound, True)], ids=["sum", "symmetric sign"]
)
def test_composed_profiles_agree_with_monte_carlo(spend, signed, delta):
    mechanism = noise(0.45, 20, signed=signed)
    epsilon = spend(ledger(mechanism, 0.3, 5), delta)
    mean, error = max(simulated(mechanism, epsilon, removing) for removing in (True, False))
    assert abs(mean - delta) < 4 * error
    louder, _ = simulated(noise(0.45 * 1.5, 20, signed=signed), epsilon, True)
    assert louder > 1.5 * delta


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-1, 1e-2])
@pytest.mark.parametrize("removing", [True, False])
def test_monte_carlo_of_a_sign_stays_within_its_bound(removing, delta):
    mechanism = noise(0.45, 20, signed=True)
    mean, error = simulated(mechanism, pld(ledger(mechanism, 0.3, 5), delta), removing)
    assert mean - 4 * error <= delta


# Against other people's accountants.


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_one_laplace_coordinate_is_that_of_dp_accounting(rate):
    theirs = PLDAccountant().compose(PoissonSampledDpEvent(rate, LaplaceDpEvent(2.0)), 50)
    ours = pld(ledger(noise(0.5, 1, "laplace"), rate, 50), DELTA)
    assert ours == pytest.approx(theirs.get_epsilon(DELTA), rel=2e-3)


def test_a_sign_costs_what_randomised_response_does_and_more_than_the_note_says():
    shift, times = 0.4, 30
    lie = 2 * (1 - expit(shift / 2))  # their noise: the share of answers that are drawn blindly
    theirs = privacy_loss_distribution.from_randomized_response(lie, 2).self_compose(times)
    ours = lower_bound(ledger(noise(shift, 1, signed=True), 1.0, times), DELTA)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=2e-3)
    sign, whole = ledger(EVERY["sign"]), ledger(EVERY["logistic"])
    assert 0.97 * pld(sign, DELTA) < lower_bound(sign, DELTA) < pld(sign, DELTA) < pld(whole, DELTA)
    assert rdp(sign, DELTA) < rdp(whole, DELTA)
    book = ledger(CoordinateMechanism("logistic", 0.3, 80_000, True), 0.01, 1000)
    assert note(book, DELTA) < 0.5 * lower_bound(book, DELTA)


@pytest.mark.slow
@every
def test_many_coordinates_cost_what_the_gaussian_of_the_same_information_does(mechanism):
    information = {"logistic": 1 / 4 if mechanism.signed else 1 / 3, "laplace": 1.0}
    many = CoordinateMechanism(mechanism.noise, 1.0, 20_000, mechanism.signed)
    gaussian = GaussianMechanism(information[mechanism.noise] ** -0.5)
    for spend, close in ((rdp, 0.01), (pld, 5e-3)):
        assert spend(ledger(many), DELTA) == pytest.approx(
            spend(ledger(gaussian), DELTA), rel=close if mechanism.noise == "logistic" else 3e-2
        )


# Against each other.


@every
@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_the_two_bounds_and_the_pure_one_are_in_order(mechanism, rate):
    book = ledger(mechanism, rate, 20)
    pure = 20 * math.log1p(rate * math.expm1(mechanism.dimension * mechanism.shift))
    assert 0 < pld(book, DELTA) <= rdp(book, DELTA) <= pure


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta"),
    [(1.0, 1.0, 1, 1e-6), (10.0, 0.1, 1000, 1e-6), (122.8558, 1.0, 1, 0.00154)],
)
def test_millions_of_signs_are_the_gaussian_limit(multiplier, rate, steps, delta):
    """The sign of d coordinates at the symmetric place tends to a Gaussian of mu = shift sqrt(d)/2;
    scipy's binomial distribution function, bdtr, is wrong by a quarter for so many."""
    limit = pld(ledger(GaussianMechanism(2 * multiplier), rate, steps), delta)
    for dimension in (3_000_000, 100_000_000):
        book = ledger(CoordinateMechanism("logistic", multiplier, dimension, True), rate, steps)
        least, most = lower_bound(book, delta), pld(book, delta)
        assert least <= most * (1 + 1e-6)
        assert (least, most) == pytest.approx((limit, limit), rel=1e-3)
        assert most <= rdp(book, delta) < 1.5 * most or rdp(book, delta) < 0.01


@every
def test_two_entries_cost_what_one_of_both_does(mechanism):
    twice = ledger(mechanism, 0.02, 100).after(Step(Poisson(0.02), (Release("x", mechanism),)), 100)
    assert len(twice.entries) == 2
    for spend in (rdp, pld):
        assert spend(twice, DELTA) == pytest.approx(spend(ledger(mechanism), DELTA), rel=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.slow
@every
@pytest.mark.parametrize(
    ("accountant", "epsilon"),
    [("rdp", 2.0), ("rdp", 8.0), pytest.param("pld", 2.0, marks=pytest.mark.slow)],
)
def test_calibration_meets_its_target_and_less_noise_does_not(mechanism, accountant, epsilon):
    def at(multiplier: float) -> Ledger:
        return ledger(
            CoordinateMechanism(mechanism.noise, multiplier, 500, mechanism.signed), 0.05, 100
        )

    multiplier = calibrate(at, epsilon, DELTA, accountant)
    spend = SPENT[accountant]
    assert 0.99 * epsilon < spend(at(multiplier), DELTA) <= epsilon
    assert spend(at(multiplier * 2 / 3), DELTA) > 1.2 * epsilon
    assert spend(at(multiplier * 3 / 2), DELTA) < 0.85 * epsilon


# The note, and refusals.


@pytest.mark.parametrize("spend", [note, lower_bound])
def test_the_note_is_about_signs_of_logistic_noise(spend):
    for other in (GaussianMechanism(1.0), EVERY["logistic"], EVERY["laplace"]):
        with pytest.raises(Unaccountable, match="signs of logistic noise"):
            spend(ledger(other), DELTA)


@pytest.mark.parametrize("spend", SPENT.values(), ids=SPENT)
def test_a_second_query_on_the_same_batch_has_no_account(spend):
    releases = (Release("sum", EVERY["sign"]), Release("counts", GaussianMechanism(10.0)))
    with pytest.raises(Unaccountable, match="CoordinateMechanism"):
        spend(Ledger().after(Step(Poisson(0.1), releases)), DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("spend", [rdp, pld])
def test_gaussian_steps_beside_others_are_composed(spend):
    gaussian = ledger(GaussianMechanism(8.0))
    alone = [spend(book, DELTA) for book in (ledger(EVERY["logistic"]), gaussian)]
    both = spend(ledger(EVERY["logistic"]).then(gaussian), DELTA)
    assert max(alone) < both < sum(alone)
