"""Signs of Gaussian noise: never more than exact places spend, and in the limit 2/pi of the sum."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import solve_banded
from scipy.special import ndtr

from dpbench.privacy import gaussian
from dpbench.privacy.accountants import gdp, pld, rdp
from dpbench.privacy.calibrate import calibrate
from dpbench.privacy.entries import SIGN_SHARE
from dpbench.privacy.gaussian import MARGIN, GaussianProfile, _log_moment, sign_mu
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)
from dpbench.system.errors import UserError

DELTA = 1e-5


def of_count(dimension: int, shift: float, place: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [d + 1] of the number of positive signs, with and without the example."""
    ones = np.arange(dimension + 1)
    return tuple(stats.binom.pmf(ones, dimension, ndtr(x)) for x in (place + shift, place))


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.clip(p - math.exp(epsilon) * q, 0, None).sum())


# The pieces of the proof.


@pytest.mark.parametrize(
    ("lambda_", "down", "up"), [(2.0, 0.3, 0.5), (30.0, 0.2, 0.1), (0.3, 1, 1)]
)
def test_the_moment_of_an_exit_is_that_of_its_differential_equation(lambda_, down, up):
    # u''/2 + u'/2 + lambda u = 0 with u = 1 at both ends; u(0) is E[exp(lambda exit)].
    n = 4001
    x, h = np.linspace(-down, up, n, retstep=True)
    bands = np.zeros((3, n))
    bands[0, 2:], bands[2, :-2] = 0.5 / h**2 + 0.25 / h, 0.5 / h**2 - 0.25 / h
    bands[1] = lambda_ - 1 / h**2
    bands[1, [0, -1]] = 1
    ends = np.zeros(n)
    ends[[0, -1]] = 1
    solved = np.interp(0, x, solve_banded((1, 1), bands, ends))
    ours = _log_moment(lambda_, np.array([down]), np.array([up])) / (1 + MARGIN)
    assert ours == pytest.approx(math.log(solved), rel=1e-4)


def test_one_sign_reveals_as_much_as_the_sum():
    shift = 0.8
    places = np.linspace(-8, 8, 40_001)
    for epsilon in (0.0, 0.5, 2.0):
        worst = max(ndtr(places + shift) - math.exp(epsilon) * ndtr(places))
        (of_sum,) = GaussianProfile(shift).at(np.array([epsilon]))
        assert worst == pytest.approx(of_sum, rel=1e-6)
    assert sign_mu(1, shift, 1e-7) == shift
    assert sign_mu(10, 9.0, 1e-7) == 9 * 10**0.5  # where no moment is finite


# Against exact profiles.


@pytest.mark.parametrize("dimension", [1500, 20_000])
@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_no_common_position_exceeds_the_bound(dimension, multiplier):
    shift, failure = 1 / (multiplier * dimension**0.5), 1e-7
    bound = GaussianProfile(sign_mu(dimension, shift, failure))
    for place in np.concatenate([np.linspace(-6, 4, 41), [-shift / 2, -shift]]):
        p, q = of_count(dimension, shift, place)
        for epsilon in np.array([0.0, 0.7, 2.0, 4.0]) / multiplier:
            (ours,) = bound.at(np.array([epsilon])) + failure
            assert max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) <= ours


@pytest.mark.parametrize("others", [-3.0, -1.0, 0.4, 2.5])
def test_no_mixture_of_two_positions_exceeds_the_bound(others):
    dimension, shift, failure = 3000, 1 / 3000**0.5, 1e-7
    bound = GaussianProfile(sign_mu(dimension, shift, failure))
    for share in (0.2, 0.5, 0.8):
        some = int(share * dimension)
        pairs = of_count(some, shift, -shift / 2), of_count(dimension - some, shift, others)
        # Where losses of the two kinds of signs differ, the pair of counts is what matters.
        p, q = (np.outer(pairs[0][i], pairs[1][i]).ravel() for i in (0, 1))
        for epsilon in (0.0, 0.5, 1.5):
            (ours,) = bound.at(np.array([epsilon])) + failure
            assert hockey_stick(p, q, epsilon) <= ours


@given(
    st.lists(st.tuples(st.floats(-4, 4), st.floats(-1, 1)), min_size=3, max_size=3),
    st.floats(0.05, 2),
    st.floats(0, 3),
)
@settings(derandomize=True, deadline=None, max_examples=25)
def test_no_places_and_no_shifts_of_few_coordinates_spend_more(drawn, shift, epsilon):
    answers = np.array(list(itertools.product([-1, 1], repeat=3)))
    places, shares = (np.array(values) for values in zip(*drawn, strict=True))
    p, q = (ndtr(answers * (places + moved)).prod(1) for moved in (shares * shift, np.zeros(3)))
    (ours,) = GaussianProfile(sign_mu(3, shift, 1e-7)).at(np.array([epsilon]))
    assert hockey_stick(p, q, epsilon) <= ours + 1e-12


@pytest.mark.parametrize(("dimension", "close"), [(20_000, 0.03), (1_000_000, 0.004)])
def test_the_symmetric_place_spends_nearly_as_much(dimension, close):
    shift = 1 / dimension**0.5
    p, q = of_count(dimension, shift, -shift / 2)
    ours = sign_mu(dimension, shift, 1e-7)
    (less,) = GaussianProfile(ours * (1 - close)).at(np.array([2.0]))
    assert hockey_stick(p, q, 2.0) > less


@pytest.mark.parametrize(
    ("dimension", "shift", "failure"), [(96_890, 0.13928, 3.5e-20), (418_479, 0.31588, 1.7e-20)]
)
def test_no_place_between_those_looked_at_costs_more(monkeypatch, dimension, shift, failure):
    ours = sign_mu(dimension, shift, failure)
    monkeypatch.setattr(gaussian, "MARGIN", 0.0)
    (exact, _) = gaussian._least_square(dimension, shift, failure, 100_001)
    assert exact**0.5 <= ours < exact**0.5 * (1 + 1e-6) < dimension**0.5 * shift


@pytest.mark.parametrize("shift", [1e-4, 0.0077, 0.1944, 1.0, 10.0])
def test_places_in_between_are_above_the_others_by_no_more_than_is_said(monkeypatch, shift):
    monkeypatch.setattr(gaussian, "MARGIN", 0.0)
    for far in (6.0, 12.2):
        few, many = (
            gaussian._losses(shift, np.linspace(-far - shift, far, n)) for n in (4001, 120_001)
        )
        most = ((math.pi / sum(many).max()) ** 2 + 0.25) / 2
        for lambda_ in (share * most for share in (0.3, 0.7, 0.95) if share * most > 0.25):
            lacking = gaussian._lacking(lambda_, *few)
            more = _log_moment(lambda_, *many) - _log_moment(lambda_, *few)
            assert -1e-15 <= more <= lacking * 1.01 + 1e-14


# Against the sum.


@pytest.mark.parametrize("failure", [1e-6, 1e-12])
def test_many_signs_cost_two_over_pi_of_the_sum(failure):
    part = [sign_mu(d, 1 / d**0.5, failure) for d in (1, 30, 3000, 10**5, 10**7)]
    assert all(one <= 1 + 1e-12 for one in part)
    assert part == sorted(part, reverse=True)
    assert math.sqrt(2 / math.pi) < part[-1] < math.sqrt(2 / math.pi) * 1.002


def ledger(mechanism, rate: float = 0.02, steps: int = 500) -> Ledger:
    return Ledger().after(Step(Poisson(rate), (Release("sum", mechanism),)), steps)


def signs(dimension: int, multiplier: float = 1.0) -> CoordinateMechanism:
    return CoordinateMechanism("gaussian", multiplier, dimension, signed=True)


@pytest.mark.parametrize("spend", [rdp, pld, gdp])
def test_the_account_is_of_a_gaussian_and_few_signs_cost_what_their_sum_does(spend):
    mu = sign_mu(100_000, 1 / 100_000**0.5, SIGN_SHARE * DELTA / (0.02 * 500))
    ours = spend(ledger(signs(100_000)), DELTA)
    theirs = spend(ledger(GaussianMechanism(1 / mu)), DELTA * (1 - SIGN_SHARE))
    assert ours == pytest.approx(theirs, rel=1e-10)  # the ends of the noise differ
    assert ours < 0.85 * spend(ledger(GaussianMechanism(1.0)), DELTA)
    assert spend(ledger(signs(50)), DELTA) == pytest.approx(
        spend(ledger(GaussianMechanism(1.0)), DELTA), rel=1e-12
    )


@pytest.mark.long
def test_of_many_coordinates_the_gaussian_sign_is_wrong_less_often_than_the_logistic_one():
    def once(law: str, dimension: int) -> float:
        def book(multiplier: float) -> Ledger:
            return ledger(CoordinateMechanism(law, multiplier, dimension, signed=True), 1.0, 1)

        return calibrate(book, 2.0, 1e-4, "pld")

    def wrong(dimension: int) -> tuple[float, float]:
        """At a signal of G sqrt(d) in each coordinate, in percent."""
        gaussian, logistic = (once(law, dimension) for law in ("gaussian", "logistic"))
        return 100 * stats.norm.sf(1 / gaussian), 100 * stats.logistic.sf(1 / logistic)

    assert wrong(4_000_000) == (pytest.approx(23.5, abs=0.1), pytest.approx(24.0, abs=0.05))
    few = wrong(300)
    assert few[0] > few[1] + 2


def test_gaussian_noise_of_sums_is_no_noise_per_coordinate():
    with pytest.raises(UserError, match="is a GaussianMechanism"):
        CoordinateMechanism("gaussian", 1.0, 10)
