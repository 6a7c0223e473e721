"""The price of a random number of runs: by dp_accounting, by the formulas, and as a property."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.stats import binom, chisquare, geom, logser, nbinom, poisson

from dpbench.privacy.accountants import ORDERS, epsilon_of, pld, rdp, renyi_divergences
from dpbench.privacy.entries import Unaccountable, unhidden
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)
from dpbench.privacy.private_selection import Repetitions, selection_costs
from dpbench.runs.records.epsilon import rounded_up
from dpbench.step.mechanism.streams import CipherStream, uniforms
from dpbench.system.errors import UserError
from dpbench.system.paths import PACKAGE

DELTA = 1e-5
LAWS = [
    Repetitions("negative_binomial", mean, shape)
    for mean in (1.5, 10.0, 100.0)
    for shape in (0.0, 0.5, 1.0, 3.0)
] + [Repetitions("poisson", mean) for mean in (1.5, 10.0)]

BINOMIAL = Repetitions("binomial", 10.0, 40.0)


def step(rate, sigma):
    return Step(Poisson(rate), (Release("x", GaussianMechanism(sigma)),))


TRIAL = Ledger().after(step(0.01, 1.2), 1000).after(step(1.0, 10.0))
EVENT = dp_accounting.ComposedDpEvent(
    [
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.2)), 1000
        ),
        dp_accounting.GaussianDpEvent(10.0),
    ]
)


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_epsilon_is_that_of_dp_accounting(law):
    shape = math.inf if law.law == "poisson" else law.shape
    theirs = RdpAccountant(ORDERS).compose(dp_event.RepeatAndSelectDpEvent(EVENT, law.mean, shape))
    single, whole = selection_costs([TRIAL], law, DELTA)
    assert whole.rdp == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-6)
    assert whole.epsilon <= whole.rdp
    assert (single.rdp, single.pld) == (rdp(TRIAL, DELTA), pld(TRIAL, DELTA))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_epsilon_is_never_below_that_of_one_run_and_grows_with_the_mean(law):
    single, whole = selection_costs([TRIAL], law, DELTA)
    more = Repetitions(law.law, 2 * law.mean, law.shape)
    most = selection_costs([TRIAL], more, DELTA)[1]
    assert single.rdp < whole.rdp < most.rdp
    assert single.pld < whole.pld < most.pld


@pytest.mark.parametrize("shape", [0.0, 1.0, 2.0])
def test_divergences_of_a_gaussian_are_the_closed_formula(shape):
    """Theorem 2 at divergences a/2 sigma^2: rho a + (1 + eta)(rho(b - 1) + log(1/gamma)/b) +
    log(E K)/(a - 1), at the best order b = sqrt(log(1/gamma)/rho)."""
    rho, law = 0.02, Repetitions("negative_binomial", 10.0, shape)
    orders = np.array(ORDERS)
    found = law.divergences(rho * orders, None)
    best = (1 + shape) * (2 * math.sqrt(rho * (-math.log(law.gamma))) - rho)
    closed = rho * orders + best + math.log(10) / (orders - 1)
    low = closed.argmin()
    assert found[low:] == pytest.approx(closed[low:], rel=1e-3)
    assert found[:low] == pytest.approx(np.full(low, closed[low]), rel=1e-3)
    if shape == 1:
        assert law.gamma == pytest.approx(0.1)


def test_the_poisson_law_is_theorem_6():
    law, single = Repetitions("poisson", 4.0), 0.01 * np.array(ORDERS)
    asked = []

    def delta_at(epsilon):
        asked.append(epsilon)
        return 1e-3

    found = law.divergences(single, delta_at)
    place = ORDERS.index(5)
    assert asked[place] == pytest.approx(math.log(5 / 4))
    assert found[place] == pytest.approx(0.05 + 4e-3 + math.log(4) / 4)


def test_candidates_cost_the_largest_divergence_of_all_at_each_order():
    few = Ledger().after(step(0.2, 2.0), 20)
    many = Ledger().after(step(0.002, 0.7), 2000)
    law = Repetitions()
    alone = [selection_costs([ledger], law, DELTA)[1].rdp for ledger in (few, many)]
    both = selection_costs([few, many, few], law, DELTA)[1].rdp
    assert both >= max(alone)
    assert both == selection_costs([many, few], law, DELTA)[1].rdp


def test_each_of_all_trials_may_show_an_example_where_its_noise_ends():
    little = Ledger().after(step(1.0, 0.25))
    law = Repetitions(mean=10.0)
    beyond = unhidden(little)
    delta = 50 * law.mean * beyond
    single, whole = selection_costs([TRIAL, little], law, delta)
    assert 0 < single.rdp < whole.rdp < math.inf
    reals = renyi_divergences(little)
    assert single.rdp >= epsilon_of(reals, delta - beyond)
    assert selection_costs([little], law, delta)[1].rdp == pytest.approx(
        epsilon_of(law.divergences(reals, None), delta * 49 / 50), rel=1e-12
    )
    one, all_trials = selection_costs([little], law, 2 * law.mean * beyond)
    assert one.epsilon < all_trials.epsilon == math.inf
    one, all_trials = selection_costs([little], law, 2 * beyond)
    assert one.epsilon == all_trials.epsilon == math.inf


def expected(law, most):
    k = np.arange(most)
    if law.law == "poisson":
        return poisson.pmf(k, law.mean)
    if law.law == "binomial":
        return binom.pmf(k, law.shape, law.mean / law.shape)
    if law.shape == 0:
        return logser.pmf(k, 1 - law.gamma)
    if law.shape == 1:
        return geom.pmf(k, law.gamma)
    untruncated = nbinom.pmf(k, law.shape, law.gamma)
    return np.where(k > 0, untruncated / (1 - law.gamma**law.shape), 0)


@pytest.mark.parametrize("law", [*LAWS, BINOMIAL], ids=repr)
def test_the_number_of_runs_follows_its_law(law):
    most = 4096
    assert law.probabilities(most - 1) == pytest.approx(expected(law, most), abs=1e-12)
    assert law.probabilities(20_000) @ np.arange(20_001) == pytest.approx(law.mean, rel=1e-4)
    stream = CipherStream(bytes(32))
    draws = np.array([law.number(u) for u in uniforms(stream, 20_000).tolist()])
    edges = np.unique(np.quantile(draws, np.linspace(0.05, 0.98, 12)).astype(int))
    seen = [((draws > low) & (draws <= high)).sum() for low, high in bins(edges)]
    chances = [expected(law, most)[low + 1 : high + 1].sum() for low, high in bins(edges)]
    wanted = np.array([*chances, 1 - sum(chances)]) * len(draws)
    found = np.array([*seen, len(draws) - sum(seen)])
    assert wanted.min() > 5
    assert chisquare(found, wanted).pvalue > 1e-3
    # The test has power: numbers of another mean fail it.
    other = Repetitions(law.law, 1.2 * law.mean, law.shape)
    moved = [expected(other, most)[low + 1 : high + 1].sum() for low, high in bins(edges)]
    assert chisquare(found, np.array([*moved, 1 - sum(moved)]) * len(draws)).pvalue < 1e-3


def bins(edges):
    return list(zip([-1, *edges[:-1]], edges, strict=True))


def test_the_negative_binomial_makes_a_run_at_least_and_poisson_perhaps_none():
    assert {law.number(1e-12) for law in LAWS if law.law != "poisson"} == {1}
    assert Repetitions("poisson", 1.5).number(1e-12) == 0


@pytest.mark.parametrize(
    "mechanism",
    [
        Exact(),
        GaussianMechanism(1.0, failure=1e-9),
        CoordinateMechanism("gaussian", 1.0, 10, signed=True),
    ],
    ids=repr,
)
def test_mechanisms_without_divergences_are_refused(mechanism):
    ledger = Ledger().after(Step(Poisson(0.1), (Release("x", mechanism),)))
    with pytest.raises(Unaccountable, match="noise whose sensitivity bound cannot fail"):
        renyi_divergences(ledger)


@pytest.mark.parametrize(
    ("law", "says"),
    [
        ({"law": "uniform"}, "law"),
        ({"law": "binomial"}, "a whole number above trials=10: set shape=20"),
        ({"law": "binomial", "shape": 10.0}, "a whole number above trials=10"),
        ({"law": "binomial", "shape": 20.5}, "a whole number above trials=10"),
        ({"mean": 1.0}, "trials must be a mean above 1"),
        ({"mean": math.inf}, "trials"),
        ({"mean": 1e6}, "trials"),
        ({"shape": -0.5}, "shape"),
        ({"shape": math.nan}, "shape"),
    ],
)
def test_a_law_that_cannot_be_is_refused(law, says):
    with pytest.raises(UserError, match=says):
        Repetitions(**law)


PRINTED = {
    "one run": None,
    "logarithmic, mean 10": Repetitions(shape=0.0),
    "geometric, mean 10": Repetitions(),
    "geometric, mean 2": Repetitions(mean=2.0),
    "geometric, mean 30": Repetitions(mean=30.0),
    "geometric, mean 100": Repetitions(mean=100.0),
    "Poisson, mean 10": Repetitions("poisson"),
    "binomial, mean 10 of at most 20": Repetitions("binomial", 10.0, 20.0),
}


@pytest.mark.parametrize(("name", "law"), PRINTED.items(), ids=PRINTED)
def test_the_page_has_the_epsilons_of_these_laws(name, law):
    page = (PACKAGE.parent / "docs/privacy/search_and_temperature.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    cost = selection_costs([TRIAL], law or Repetitions(), DELTA)[law is not None]
    by_divergences = "-" if cost.rdp is None else rounded_up(cost.rdp, 3)
    assert row == f"| {name} | {by_divergences} | {rounded_up(cost.pld, 3)} |"
