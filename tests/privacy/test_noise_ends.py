"""Where noise ends, an example may show: what it costs, and where it makes epsilon infinite."""

import math

import pytest
from scipy import stats

from dpbench.privacy.accountants import claimed, pld, pld_of_reals, rdp, rdp_of_reals
from dpbench.privacy.entries import GAUSSIAN_END, LOGISTIC_END, cut_probability, unhidden
from dpbench.privacy.ledger import (
    Allocation,
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    TruncatedPoisson,
)
from dpbench.step.methods.dicesgd import dicesgd

DELTA = 1e-5
RATE, STEPS = 0.02, 300


def ledger(*sigmas: float) -> Ledger:
    queries = tuple(Release(f"query {i}", GaussianMechanism(s)) for i, s in enumerate(sigmas))
    return Ledger().after(Step(Poisson(RATE), queries), STEPS)


def test_epsilon_is_infinite_where_noise_ends_before_it_hides_an_example_at_this_delta():
    """An epsilon that a paper claims is for noise of real numbers."""
    for little, delta in ((ledger(0.1), DELTA), (ledger(1.0), 1e-21), (ledger(5.0), 1e-300)):
        assert rdp(little, delta) == pld(little, delta) == math.inf
        assert claimed(little, delta, "rdp") == rdp_of_reals(little, delta) < math.inf
    assert pld(ledger(1.0), DELTA) == pytest.approx(pld_of_reals(ledger(1.0), DELTA), rel=1e-12)


@pytest.mark.parametrize(
    ("mechanism", "law", "times"),
    [
        (GaussianMechanism(0.3), Poisson(0.02), 300),
        (CoordinateMechanism("logistic", 0.02, 2), Poisson(0.02), 300),
        (CoordinateMechanism("gaussian", 0.3, 2, signed=True), Poisson(0.02), 300),
        (GaussianMechanism(0.3), TruncatedPoisson(0.02, 30, 1000), 300),
        (GaussianMechanism(0.3), Allocation(50), 300),
    ],
    ids=str,
)
def test_unreachable_outputs_add_up_over_the_steps_of_an_example(mechanism, law, times):
    one, rate = mechanism, 1 / 50
    inside = rate * times
    if isinstance(one, GaussianMechanism):
        beyond = stats.norm.sf(GAUSSIAN_END - 1 / 0.3)
        if isinstance(law, TruncatedPoisson):
            beyond += cut_probability(law) * stats.norm.sf(GAUSSIAN_END - 2 / 0.3)
    elif one.noise == "gaussian":
        beyond = 2 * stats.norm.sf(GAUSSIAN_END - one.shift)
    else:
        beyond = 2 * math.exp(one.shift - LOGISTIC_END)
    book = Ledger().after(Step(law, (Release("sum", mechanism),)), times)
    assert unhidden(book) == pytest.approx(inside * beyond)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("error_bound", [0.1, 0.5])
def test_an_example_may_move_noise_by_its_gradient_and_by_the_error_it_left(share, error_bound):
    """In the worst case both are in one coordinate, whose noise is one draw and not two."""
    method, noise_multiplier = dicesgd(1.0, error_bound, share), 0.4
    step = Step(Poisson(0.01), method.releases(noise_multiplier))
    together = (1.0 + 2 * error_bound) / noise_multiplier
    shown = 300 * 0.01 * stats.norm.sf(GAUSSIAN_END - together)
    assert unhidden(Ledger().after(step, 300)) >= shown


def test_each_query_may_show_an_example_and_rare_cuts_cost_no_more():
    book = ledger(1.0, 0.05)
    assert unhidden(book) > 0.99 * RATE * STEPS
    assert rdp(book, DELTA) == math.inf

    def spent(law) -> float:
        return pld(Ledger().after(Step(law, (Release("sum", GaussianMechanism(0.4)),)), 1000), 1e-6)

    assert spent(TruncatedPoisson(0.01, 300, 20_000)) == pytest.approx(spent(Poisson(0.01)), 1e-3)
