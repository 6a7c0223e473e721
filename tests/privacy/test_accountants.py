"""Accountants: the same epsilons as other people's, and refusals instead of guesses."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import GaussianAccountant, RDPAccountant
from scipy import stats

from dpbench.privacy.accountants import SPENT, gdp, pld, pld_of_reals, rdp, rdp_of_reals
from dpbench.privacy.entries import Unaccountable, joint_multiplier, one_batch_per_release
from dpbench.privacy.gaussian import exact_epsilon
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Shuffled,
    Step,
)
from dpbench.system.errors import UserError

DELTA = 1e-5
RATE, STEPS = 0.02, 300

cheap = settings(derandomize=True, deadline=None, max_examples=4)


def releases(*sigmas: float) -> tuple[Release, ...]:
    return tuple(Release(f"query {i}", GaussianMechanism(s)) for i, s in enumerate(sigmas))


def ledger(*sigmas: float, rate: float = RATE, steps: int = STEPS) -> Ledger:
    return Ledger().after(Step(Poisson(rate), releases(*sigmas)), steps)


MIXED = ledger(1.0).after(Step(Poisson(0.05), releases(2.0)), 50)


# Against other people's accountants.


def composed(accountant, book: Ledger):
    for step, times in book.entries:
        (release,) = step.releases
        event = dp_accounting.GaussianDpEvent(release.mechanism.noise_multiplier)
        event = dp_accounting.PoissonSampledDpEvent(step.sampling.rate, event)
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, times))
    return accountant


@pytest.mark.parametrize("book", [ledger(1.0), ledger(0.6), ledger(5.0), MIXED])
def test_rdp_agrees_with_dp_accounting(book):
    theirs = composed(RdpAccountant(), book).get_epsilon(DELTA)  # on its own orders
    assert rdp(book, DELTA) == pytest.approx(theirs, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("book", [ledger(1.0), ledger(5.0), MIXED])
def test_pld_agrees_with_dp_accounting(book):
    theirs = composed(PLDAccountant(), book).get_epsilon(DELTA)
    assert pld(book, DELTA) == pytest.approx(theirs, rel=5e-5)  # their grid is coarser at sigma 5


@pytest.mark.parametrize("sigma", [0.8, 1.0, 3.0])
def test_rdp_is_close_to_that_of_opacus(sigma):
    theirs = RDPAccountant()
    theirs.history = [(sigma, RATE, STEPS)]
    assert rdp(ledger(sigma), DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-2)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 3.0])
def test_gdp_is_that_of_opacus(sigma):
    with pytest.warns(UserWarning, match="can underestimate"):
        theirs = GaussianAccountant()
    theirs.history = [(sigma, RATE, STEPS)]
    assert gdp(ledger(sigma), DELTA) == theirs.get_epsilon(DELTA)


@pytest.mark.slow
def test_gdp_understates_epsilon():
    assert gdp(ledger(0.6), DELTA) < 0.8 * pld(ledger(0.6), DELTA)


# Esipova et al. 2023, appendix B: n, epochs, sigma, and the epsilon printed, at delta 1e-6.
@pytest.mark.parametrize(
    ("size", "epochs", "sigma", "printed"),
    [
        pytest.param(23_512, 20, 1.0, 3.41, id="adult"),
        pytest.param(48_336, 20, 1.0, 2.27, id="dutch"),
        pytest.param(54_675, 60, 0.8, 5.90, id="mnist"),
        pytest.param(162_770, 30, 0.8, 2.49, id="celeba"),
    ],
)
def test_the_printed_epsilons_follow_from_rdp_and_are_not_tight(size, epochs, sigma, printed):
    per_epoch = math.ceil(size / 256)
    book = ledger(sigma, rate=1 / per_epoch, steps=epochs * per_epoch)
    assert round(rdp(book, 1e-6), 2) == printed
    assert pld(book, 1e-6) < 0.95 * printed


# Several releases from one batch.


def hockey_stick(log_ratio: np.ndarray, mass: np.ndarray, epsilon: float) -> float:
    """The delta of one release at epsilon: sum of max(0, P - e^epsilon Q) from log P/Q and P."""
    return float((mass * np.clip(-np.expm1(epsilon - log_ratio), 0, None)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("sigmas", [(1.0, 2.0), (0.8, 8.0)])
def test_two_gaussians_on_one_batch_agree_with_brute_force(sigmas):
    # The pair on a grid in both dimensions: N(0, I) against the mixture of one example in or out.
    rate, epsilon = 0.3, pld(ledger(*sigmas, rate=0.3, steps=1), DELTA)
    grid = np.linspace(-9, 12, 2101)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    out = np.outer(stats.norm.pdf(grid), stats.norm.pdf(grid)) * (grid[1] - grid[0]) ** 2
    mu, nu = 1 / sigmas[0], 1 / sigmas[1]
    log_ratio = np.log1p(rate * np.expm1(mu * x + nu * y - (mu**2 + nu**2) / 2))
    removed = [hockey_stick(log_ratio, out * np.exp(log_ratio), e * epsilon) for e in (1, 0.99)]
    added = hockey_stick(-log_ratio, out, epsilon)
    assert max(removed[0], added) <= DELTA * (1 + 1e-6)
    assert removed[1] > DELTA  # and no more than it needs to be


@pytest.mark.slow
@pytest.mark.parametrize("sigmas", [(1.0, 2.0), (3.0, 3.0, 3.0)])
def test_without_sampling_the_joint_release_is_the_composition(sigmas):
    joint = ledger(*sigmas, rate=1.0, steps=2)
    parts = PLDAccountant()
    for sigma in sigmas:
        parts.compose(dp_accounting.GaussianDpEvent(sigma), 2)
    assert pld(joint, DELTA) == pytest.approx(parts.get_epsilon(DELTA), rel=1e-3)
    assert rdp(joint, DELTA) == pytest.approx(rdp(one_batch_per_release(joint), DELTA), rel=1e-9)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=4))
@cheap
def test_the_joint_multiplier_adds_precisions(sigmas):
    joint = joint_multiplier(releases(*sigmas))
    assert joint**-2 == pytest.approx(sum(s**-2 for s in sigmas))
    assert joint <= min(sigmas) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["rdp", "pld"])
def test_batches_of_their_own_understate_what_one_batch_reveals(name):
    spend, book = SPENT[name], ledger(1.0, 1.0)
    assert spend(book, DELTA) > 1.05 * spend(one_batch_per_release(book), DELTA)
    assert spend(one_batch_per_release(book), DELTA) > 1.05 * spend(ledger(1.0), DELTA)


def test_separated_keeps_all_releases_and_their_number():
    apart = one_batch_per_release(ledger(1.0, 2.0))
    assert apart.entries == (
        ledger(1.0).entries[0],
        (Step(Poisson(RATE), (releases(1, 2)[1],)), STEPS),
    )


# Order.

sigmas, rates, steps, deltas = (
    st.floats(0.7, 5),
    st.floats(0.001, 0.1),
    st.integers(1, 2000),
    st.floats(1e-8, 1e-3),
)


@given(sigmas, rates, steps, deltas, st.floats(1.05, 2))
@cheap
def test_epsilon_falls_with_noise_and_grows_with_rate_and_steps(sigma, rate, times, delta, more):
    def spent(sigma=sigma, rate=rate, times=times, delta=delta) -> float:
        return rdp(ledger(sigma, rate=rate, steps=times), delta)

    epsilon = spent()
    assert spent(sigma=sigma * more) <= epsilon * (1 + 1e-9)
    assert spent(delta=delta * more) <= epsilon * (1 + 1e-9)
    assert spent(rate=rate * more) >= epsilon * (1 - 1e-9)
    assert spent(times=math.ceil(times * more)) >= epsilon * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("accountant", SPENT.values(), ids=SPENT)
def test_every_accountant_is_strictly_monotone_where_it_matters(accountant):
    epsilon = accountant(ledger(1.0), DELTA)
    assert accountant(ledger(1.1), DELTA) < epsilon
    assert accountant(ledger(1.0), DELTA / 10) > epsilon
    assert accountant(ledger(1.0, rate=1.1 * RATE), DELTA) > epsilon
    assert accountant(ledger(1.0, steps=2 * STEPS), DELTA) > epsilon
    assert accountant(ledger(1.0, 10.0), DELTA) > epsilon


@pytest.mark.parametrize("book", [ledger(0.8), ledger(3.0), ledger(1.0, 10.0), MIXED])
def test_pld_is_never_above_rdp(book):
    assert pld(book, DELTA) <= rdp(book, DELTA)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [(75_411.0, 1.74118e-05, 3_298_937, 2.7e-08), (37_944.0, 3.939e-06, 1_394_421, 2.04e-11)],
)
def test_a_divergence_below_its_round_off_does_not_pass_for_none(sigma, rate, steps, delta):
    """Computed, it was negative or 0 at some order, and epsilon 0, as in dp_accounting."""
    book = ledger(sigma, rate=rate, steps=steps)
    assert 0 < pld(book, delta) < rdp(book, delta)


def test_a_divergence_that_delta_covers_costs_nothing():
    assert rdp(ledger(1e5, rate=0.01, steps=10), DELTA) == 0


# Refusals and limits.


class Laplace:
    """A mechanism that no accountant here knows."""


every = pytest.mark.parametrize("accountant", SPENT.values(), ids=SPENT)


@every
def test_an_unknown_mechanism_is_refused(accountant):
    book = Ledger().after(Step(Poisson(RATE), (Release("quantile", Laplace()),)))
    with pytest.raises(Unaccountable, match=r"Laplace \(quantile\)"):
        accountant(book, DELTA)


@every
def test_shuffled_batches_are_refused(accountant):
    book = ledger(1.0).after(Step(Shuffled(256), releases(1.0)))
    with pytest.raises(Unaccountable, match="sampler=poisson"):
        accountant(book, DELTA)


@every
@pytest.mark.parametrize("delta", [0, 1, -1e-6, 1.5, math.nan])
def test_delta_outside_the_unit_interval_is_refused(accountant, delta):
    with pytest.raises(UserError, match="delta must lie between 0 and 1"):
        accountant(ledger(1.0), delta)


@every
def test_one_exact_release_makes_epsilon_infinite(accountant):
    exact = Step(Poisson(RATE), (*releases(1.0), Release("counts", Exact())))
    assert accountant(ledger(1.0).after(exact), DELTA) == math.inf


@every
def test_no_steps_cost_nothing(accountant):
    assert accountant(Ledger(), DELTA) == 0


@pytest.mark.parametrize(
    "book",
    [
        pytest.param(ledger(0.05, rate=1.0, steps=5), id="low edge"),
        pytest.param(ledger(5000.0, rate=1.0, steps=1), id="high edge"),
    ],
)
def test_rdp_refuses_a_best_order_at_the_edge_of_those_tried(book, monkeypatch):
    # Few orders, so that ordinary ledgers find their optimum at an edge.
    monkeypatch.setattr("dpbench.privacy.accountants.ORDERS", (2.0, 3.0, 4.0))
    with pytest.raises(Unaccountable, match="edge of the orders"):
        rdp_of_reals(
            book, 1e-2 if book.entries[0][0].releases[0].mechanism.noise_multiplier < 1 else 1e-9
        )


@every
@pytest.mark.parametrize("answer", [math.nan, math.inf])
def test_an_answer_that_is_no_epsilon_is_an_error(accountant, answer, monkeypatch):
    """Infinity is one only for an exact release, of which there is none."""
    target = {
        "rdp": "dpbench.privacy.accountants.smallest_epsilon",
        "pld": "dpbench.privacy.accountants.tight_epsilon",
        "gdp": "dpbench.privacy.accountants.limit_epsilon",
    }[accountant.__name__]
    monkeypatch.setattr(target, lambda *_, **__: (answer, 5.0) if accountant is rdp else answer)
    sigma = 1.2345 if math.isnan(answer) else 1.2346  # of its own, since answers are remembered
    with pytest.raises(Unaccountable, match="has no bound at delta=1e-05"):
        accountant(ledger(sigma), DELTA)


@pytest.mark.parametrize("accountant", [rdp_of_reals, pld_of_reals, gdp], ids=["rdp", "pld", "gdp"])
@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(GaussianMechanism(1e-5), id="gaussian"),
        pytest.param(CoordinateMechanism("logistic", 1e-6, 100), id="logistic"),
        pytest.param(CoordinateMechanism("logistic", 3e-4, 100, signed=True), id="signs"),
    ],
)
def test_numbers_that_overflow_end_in_a_bound_or_a_refusal(accountant, mechanism):
    book = Ledger().after(Step(Poisson(1 / 6), (Release("sum", mechanism),)), 120)
    try:
        epsilon = accountant(book, DELTA)
    except Unaccountable:
        return
    assert 1e4 < epsilon < math.inf


@pytest.mark.parametrize("delta", [1e-13, 1e-15, 1e-100])
def test_pld_is_never_below_what_many_steps_without_sampling_spend(delta):
    steps = 100_000
    book = ledger(steps**0.5 / 10, rate=1.0, steps=steps)
    spent = exact_epsilon(10.0, delta)
    assert spent <= pld_of_reals(book, delta) <= spent * (1 + 1e-9)
    assert spent <= rdp_of_reals(book, delta) <= spent * 1.05


@pytest.mark.slow
def test_pld_of_a_million_steps_with_little_noise_is_there_at_once():
    exact = exact_epsilon(1_000_000**0.5 / 0.3, DELTA)
    assert pld_of_reals(ledger(0.3, rate=1.0, steps=1_000_000), DELTA) == exact
    nearly = pld_of_reals(ledger(0.3, rate=0.9999, steps=1_000_000), DELTA)
    assert 0.99 * exact < nearly < exact * (1 + 1e-3)


@pytest.mark.slow
def test_steps_without_sampling_beside_others_are_one_gaussian():
    part = ledger(4.0, rate=1.0, steps=4)
    both = part.after(*ledger(1.0).entries[0]).after(*part.entries[0])
    theirs = PLDAccountant()
    theirs.compose(dp_accounting.GaussianDpEvent(4.0), 8)
    composed(theirs, ledger(1.0))
    assert pld(both, DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-5)
