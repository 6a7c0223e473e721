"""From an epsilon to the noise that meets it."""

import math

import pytest

from dpbench.privacy.accountants import SPENT
from dpbench.privacy.calibrate import LARGEST, calibrate
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Exact, GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.system.errors import UserError

DELTA = 1e-5
RATE, STEPS = 0.02, 300


def releases(*sigmas: float) -> tuple[Release, ...]:
    return tuple(Release(f"query {i}", GaussianMechanism(s)) for i, s in enumerate(sigmas))


def ledger(*sigmas: float, rate: float = RATE, steps: int = STEPS) -> Ledger:
    return Ledger().after(Step(Poisson(rate), releases(*sigmas)), steps)


# From an epsilon to the noise.


slow = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        *[("rdp", 0.5), ("rdp", 3.0), ("rdp", 8.0)],
        *[pytest.param(*case, marks=slow) for case in (("rdp", 0.5), ("pld", 0.5), ("pld", 3.0))],
    ],
)
@pytest.mark.parametrize("side", [(), (10.0,)], ids=["alone", "with counts"])
def test_calibrated_noise_meets_epsilon_and_one_percent_less_does_not(name, epsilon, side):
    def at(sigma: float) -> Ledger:
        return ledger(sigma, *side)

    sigma = calibrate(at, epsilon, DELTA, name)
    assert SPENT[name](at(sigma), DELTA) <= epsilon
    assert SPENT[name](at(0.99 * sigma), DELTA) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps"),
    [
        (3.0, DELTA, RATE, STEPS),
        (1.0, 1e-6, 1 / 1500, 3000),  # by RDP, three quarters of it are not spent
        (0.1, DELTA, 1 / 6, 60),
    ],
)
def test_the_smaller_bound_meets_epsilon_with_no_more_noise_than_either(
    epsilon, delta, rate, steps
):
    def at(sigma: float) -> Ledger:
        return ledger(sigma, rate=rate, steps=steps)

    best, *others = (calibrate(at, epsilon, delta, by) for by in ("best", "rdp", "pld"))
    assert best <= 1.002 * min(others)
    assert 0.998 * epsilon <= min(SPENT[by](at(best), delta) for by in ("rdp", "pld")) <= epsilon


@pytest.mark.parametrize("refused", ["rdp", "pld"])
def test_where_one_accountant_refuses_the_smaller_bound_is_the_other_one(refused, monkeypatch):
    def refuse(*_) -> float:
        raise Unaccountable("not this one")

    (other,) = {"rdp", "pld"} - {refused}
    alone = calibrate(ledger, 1.0, DELTA, other)
    monkeypatch.setitem(SPENT, refused, refuse)
    assert calibrate(ledger, 1.0, DELTA, "best") == alone


def test_rdp_stands_where_pld_is_larger(monkeypatch):
    alone = calibrate(ledger, 1.0, DELTA, "rdp")
    monkeypatch.setitem(SPENT, "pld", lambda *_: 1.1)
    assert calibrate(ledger, 1.0, DELTA, "best") == alone


def test_side_queries_are_paid_for_by_the_gradient():
    alone = calibrate(ledger, 1.0, DELTA, "rdp")
    beside = calibrate(lambda sigma: ledger(sigma, 3.0), 1.0, DELTA, "rdp")
    assert beside**-2 + 3.0**-2 == pytest.approx(alone**-2, rel=5e-3)


def test_epsilons_out_of_reach_and_approximations_are_no_target():
    with pytest.raises(UserError, match="even a noise multiplier of 100,000 leaves epsilon="):
        calibrate(lambda sigma: ledger(sigma, 0.7), 0.5, DELTA, "rdp")
    with pytest.raises(UserError, match="gdp is an approximation and cannot be a target: use pld"):
        calibrate(ledger, 1.0, DELTA, "gdp")
    exact = Release("counts", Exact())
    with pytest.raises(UserError, match="even a noise multiplier of 100,000 leaves epsilon="):
        calibrate(
            lambda s: Ledger().after(Step(Poisson(RATE), (*releases(s), exact))), 8, DELTA, "pld"
        )
    with pytest.raises(UserError, match="epsilon must be a positive number, got -3"):
        calibrate(lambda sigma: Ledger(), -3.0, 1e-5, "pld")
    with pytest.raises(UserError, match="accountant=foo is unknown"):
        calibrate(lambda sigma: Ledger(), 3.0, 1e-5, "foo")


def test_the_largest_multiplier_is_tried_itself():
    def long(sigma):
        return Ledger().after(Step(Poisson(1.0), releases(sigma)), 10**8)

    epsilon = SPENT["rdp"](long(LARGEST), DELTA)
    assert epsilon > 0
    assert calibrate(long, epsilon, DELTA, "rdp") == LARGEST


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 30.0])
def test_calibration_never_tries_noise_far_below_the_answer(epsilon):
    # A privacy loss distribution takes gigabytes at a multiplier of 0.1 and a long run.
    asked: list[float] = []
    sigma = calibrate(lambda s: asked.append(s) or ledger(s), epsilon, DELTA, "rdp")
    assert min(asked) >= min(0.8, sigma / 2)


def halved(spent, epsilon: float) -> float:
    """What `calibrate` finds, by nothing but doubling and halving."""
    low, high = 0.4, 0.8
    while low > 0.05 and spent(low) <= epsilon:
        low, high = low / 2, low
    while spent(high) > epsilon:
        low, high = high, high * 2
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def exact_below_one(multiplier: float) -> float:
    return math.inf if multiplier < 1 else 9 / multiplier


def failing_below_one(multiplier: float) -> float:
    if 0.81 < multiplier < 1:
        raise Unaccountable("made up")
    return 9 / multiplier if multiplier >= 1 else 1e9


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 8.99, 40.0])
@pytest.mark.parametrize(
    "spent",
    [lambda m: 3 / m, lambda m: 1 / m + 2 / m**2, lambda m: 5 / m**4, exact_below_one],
    ids=["line", "sum", "steep", "exact"],
)
def test_a_noise_multiplier_is_that_of_halving_with_fewer_questions(spent, epsilon, monkeypatch):
    asked = set()

    def accountant(multiplier, delta):
        asked.add(multiplier)
        return spent(multiplier)

    monkeypatch.setitem(SPENT, "rdp", accountant)
    found = calibrate(lambda multiplier: multiplier, epsilon, 1e-5, "rdp")
    ours, asked_by_halving = len(asked), set()
    assert found == halved(lambda m: asked_by_halving.add(m) or spent(m), epsilon)
    assert ours <= len(asked_by_halving)


def test_a_multiplier_that_has_no_account_on_the_way_costs_only_time(monkeypatch):
    monkeypatch.setitem(SPENT, "rdp", lambda multiplier, _: failing_below_one(multiplier))
    assert calibrate(lambda m: m, 3.0, 1e-5, "rdp") == halved(failing_below_one, 3.0)
