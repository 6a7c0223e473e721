"""The account of private selection by privacy profiles, against the exact laws of the best run."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.gaussian import GaussianProfile
from dpbench.privacy.ledger import (
    Allocation,
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    ToeplitzGaussian,
)
from dpbench.privacy.private_selection import Repetitions, selection_costs
from dpbench.privacy.profiles import ledger_profile

DELTA = 1e-5
MOST_ATOMS, MOST_RUNS = 7, 4000
LAWS = [
    Repetitions(mean=3.0, shape=0.0),
    Repetitions(mean=10.0, shape=0.0),
    Repetitions(mean=3.0, shape=1.0),
    Repetitions(mean=10.0, shape=1.0),
    Repetitions(mean=4.0, shape=3.0),
    Repetitions("poisson", 1.5),
    Repetitions("poisson", 10.0),
    Repetitions("binomial", 4.0, 5.0),
    Repetitions("binomial", 10.0, 20.0),
]


def hockey_stick(p, q, epsilons):
    """Deltas [..., N] of discrete laws p, q [..., atoms] at epsilons [N]."""
    gaps = p[..., None, :] - np.exp(epsilons)[:, None] * q[..., None, :]
    return np.maximum(gaps, 0).sum(-1)


def larger(p, q, epsilon):
    """The profile of a pair, the larger of both directions."""
    return max(forward(p, q, epsilon), forward(q, p, epsilon))


def forward(p, q, epsilon):
    return float(hockey_stick(p, q, np.array([epsilon]))[0])


class Pair:
    """Two random laws on a few atoms, some of which only one of them has, and groups of atoms that
    have the same score."""

    def __init__(self, draw):
        atoms = draw.integers(2, MOST_ATOMS + 1)
        weights = np.exp(draw.normal(0, 2.5, atoms))
        others = weights * np.exp(draw.normal(0, draw.choice([0.1, 0.5, 2.0]), atoms))
        kind = draw.integers(4)
        if kind & 1:
            weights[0] = 0
        if kind & 2:
            others[-1] = 0
        self.p, self.q = weights / weights.sum(), others / others.sum()
        labels = draw.integers(0, atoms, atoms) if draw.random() < 0.5 else np.arange(atoms)
        self.groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def best_runs(self, law):
        """The exact laws [orders, atoms] of the best run for both, in every order of the groups.

        A tied group is released if all runs are at or below it, and not all below; which of its
        atoms then is that of a random one of the tied runs.
        """
        orders = np.array(list(itertools.permutations(range(len(self.groups)))))
        return tuple(self._best_runs(side, orders, law) for side in (self.p, self.q))

    def _best_runs(self, masses, orders, law):
        groups = np.array([masses[group].sum() for group in self.groups])
        reached = generating(law, np.minimum(np.cumsum(groups[orders], axis=1), 1))
        before = np.concatenate(
            [np.full((len(orders), 1), law.probabilities(1)[0]), reached], axis=1
        )
        released = np.empty(orders.shape)
        np.put_along_axis(released, orders, reached - before[:, :-1], axis=1)
        best = np.zeros((len(orders), len(masses)))
        for place, group in enumerate(self.groups):
            share = masses[group] / groups[place] if groups[place] else masses[group]
            best[:, group] = released[:, [place]] * share
        return best


def generating(law, x):
    """E[x^K] by the probabilities of K themselves."""
    points, places = np.unique(x, return_inverse=True)
    powers = points[:, None] ** np.arange(MOST_RUNS + 1)
    return (powers @ law.probabilities(MOST_RUNS))[places].reshape(x.shape)


def excess_over_bound(pair, law, *, profile=larger, power=1.0, mean=1.0):
    """The most by which an exact delta exceeds the bound, over all orders and both directions.

    profile: of a pair; power, mean: factors of the exponent and of E[K]. The bound is the usual one
    by default.
    """
    shift = power * law.excess(lambda epsilon: profile(pair.p, pair.q, epsilon))
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.abs(np.log(pair.p / pair.q))
    epsilons = np.unique([0.0, 0.05, 0.2, *losses[np.isfinite(losses)], *losses[losses > 1] / 2])
    epsilons = epsilons[np.isfinite(epsilons)]
    bound = [mean * law.mean * profile(pair.p, pair.q, epsilon) for epsilon in epsilons]
    first, second = pair.best_runs(law)
    exact = max_over_orders(first, second, shift + epsilons)
    if profile is larger:
        exact = np.maximum(exact, max_over_orders(second, first, shift + epsilons))
    return float((exact - bound).max())


def max_over_orders(first, second, epsilons):
    return hockey_stick(first, second, epsilons).max(0)


def pairs(number, seed=0):
    draw = np.random.default_rng(seed)
    return [Pair(draw) for _ in range(number)]


def check_no_order_exceeds_the_bound(number, seed):
    for i, pair in enumerate(pairs(number, seed)):
        for law in LAWS if i % 10 == 0 else [LAWS[i % len(LAWS)]]:
            assert excess_over_bound(pair, law) < 1e-12, (vars(pair), law)


def test_the_exact_law_of_the_best_run_is_that_of_a_simulation():
    pair = next(pair for pair in pairs(30) if 2 < len(pair.groups) < len(pair.p))
    law, draw = Repetitions(mean=3.0), np.random.default_rng(1)
    scores = np.empty(len(pair.p))
    for score, group in enumerate(pair.groups):
        scores[group] = score
    best, _ = pair.best_runs(law)
    counts = np.zeros(len(pair.p))
    for _ in range(rounds := 20_000):
        runs = draw.choice(len(pair.p), law.number(draw.random()), p=pair.p)
        counts[max(runs, key=scores.__getitem__)] += 1  # of equal ones the first, as in a search
    assert counts / rounds == pytest.approx(best[0], abs=5 * 0.5 / math.sqrt(rounds))


@pytest.mark.slow
def test_no_order_of_scores_exceeds_the_bound():
    check_no_order_exceeds_the_bound(60, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_no_order_of_scores_exceeds_the_bound_in_thousands_of_cases(seed):
    check_no_order_exceeds_the_bound(500, seed)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [each for each in LAWS if each.law == "negative_binomial"], ids=repr
)
def test_mistakes_in_the_bound_are_found(law):
    """The exponent eta instead of eta + 1, half the mean, and one direction alone."""
    some = pairs(60)
    for mistake in ({"power": law.shape / (law.shape + 1)}, {"mean": 0.5}, {"profile": forward}):
        assert max(excess_over_bound(pair, law, **mistake) for pair in some) > 1e-3


def test_a_choice_that_is_released_costs_the_mean_and_one_that_is_not_at_most_that():
    draw = np.random.default_rng(0)
    for _ in range(100):
        p, q = draw.dirichlet(np.ones(5), 3), draw.dirichlet(np.ones(5), 3)
        for epsilon in (0.0, 0.3, 1.0):
            mean = np.mean([forward(*pair, epsilon) for pair in zip(p, q, strict=True)])
            assert forward(p.ravel() / 3, q.ravel() / 3, epsilon) == pytest.approx(mean)
            assert forward(p.mean(0), q.mean(0), epsilon) <= mean + 1e-12


def step(mechanism, rate=1.0):
    return Step(Poisson(rate), (Release("x", mechanism),))


SCORE = step(GaussianMechanism(10.0))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("law", LAWS[3:9:2], ids=repr)
def test_the_account_of_a_gaussian_is_the_closed_formula_and_no_score_exceeds_it(sigma, law):
    profile = GaussianProfile(1 / sigma)

    def at(epsilon):
        return profile.at(np.array([epsilon]))[0]

    alone = brentq(lambda e: law.mean * at(e) / DELTA - 1, 0, 200)
    closed = alone + law.excess(at)
    _, whole = selection_costs([Ledger().after(step(GaussianMechanism(sigma)))], law, DELTA)
    assert closed * (1 - 1e-9) < whole.pld < closed * (1 + 1e-4)
    for order in (lambda x: x, lambda x: -x, np.abs, lambda x: -np.abs(x - 1)):
        assert exact_delta(law, sigma, order, whole.pld) < DELTA


def exact_delta(law, sigma, order, epsilon):
    """Of the best of several draws of N(0, sigma^2) against N(1, sigma^2), by a fine grid."""
    edges = np.linspace(-14 * sigma, 14 * sigma + 1, 20_001)
    best = []
    for mean in (0.0, 1.0):
        masses = np.diff(norm.cdf(edges, mean, sigma))
        ranks = np.argsort(order((edges[1:] + edges[:-1]) / 2), kind="stable")
        upto = np.minimum(np.concatenate([[0.0], np.cumsum(masses[ranks])]), 1)
        best.append(np.diff(closed_generating(law, upto)))
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in (best, best[::-1]))


def closed_generating(law, x):
    """E[x^K], up to a constant."""
    if law.law == "poisson":
        return np.exp(law.mean * (x - 1))
    if law.law == "binomial":
        return (law.gamma + (1 - law.gamma) * x) ** law.shape
    assert law.shape == 1
    return law.gamma * x / (1 - (1 - law.gamma) * x)


FEW = Ledger().after(step(GaussianMechanism(2.0), 0.2), 20).after(SCORE)
MANY = Ledger().after(step(GaussianMechanism(0.7), 0.002), 2000).after(SCORE)


def test_candidates_cost_the_mean_of_their_profiles():
    def spent(*ledgers):
        return selection_costs(ledgers, Repetitions(), DELTA)[1].pld

    assert spent(FEW) == spent(FEW, FEW)
    least, most = sorted([FEW, MANY], key=spent)
    mixtures = [spent(least), spent(least, least, most), spent(least, most, most), spent(most)]
    assert sorted({*mixtures}) == mixtures


@pytest.mark.parametrize(
    ("ledger", "law"),
    [
        (Ledger().after(step(GaussianMechanism(1.0, failure=1e-12), 0.1), 9), Repetitions()),
        (
            Ledger().after(step(CoordinateMechanism("gaussian", 1.0, 9, signed=True), 0.1), 9),
            Repetitions(),
        ),
        (
            Ledger().after(Step(Allocation(9), step(GaussianMechanism(1.0)).releases), 9),
            Repetitions(),
        ),
        (FEW, Repetitions("binomial", 10.0, 20.0)),
    ],
    ids=["failure", "signs", "allocation", "binomial"],
)
def test_mechanisms_without_divergences_have_a_profile(ledger, law):
    single, whole = selection_costs([ledger.after(SCORE)], law, DELTA)
    assert whole.rdp is None
    assert whole.by == "pld"
    assert single.epsilon < whole.epsilon == whole.pld < math.inf


def test_correlated_noise_and_noise_on_coordinates_have_both_accounts():
    for mechanism in (
        ToeplitzGaussian(3.0, (0.5,), (0.5,)),
        CoordinateMechanism("laplace", 9.0, 9),
    ):
        _, whole = selection_costs(
            [Ledger().after(step(mechanism), 9).after(SCORE)], Repetitions(), DELTA
        )
        assert 0 < whole.pld < whole.rdp


def test_a_failure_is_added_to_delta_for_each_trial():
    failure, law = 1e-8, Repetitions()
    sure, unsure = (
        Ledger().after(step(GaussianMechanism(1.0, failure=f))).after(SCORE) for f in (0, failure)
    )
    share = DELTA / law.mean
    profiles = [ledger_profile(ledger, share) for ledger in (sure, unsure)]
    deltas = [float(profile.at(np.array(pld(sure, 1e-7)))) for profile in profiles]
    assert deltas[1] - deltas[0] == pytest.approx(failure, rel=0.01)
    assert pld(unsure, DELTA) < selection_costs([unsure], law, DELTA)[1].pld
    too_likely = Ledger().after(step(GaussianMechanism(1.0, failure=1.1e-7))).after(SCORE)
    assert pld(too_likely, DELTA) > 0
    with pytest.raises(Unaccountable, match=r"not small against delta=1e-06"):
        selection_costs([too_likely], law, DELTA)


def test_exact_releases_have_no_profile():
    with pytest.raises(Unaccountable, match="exact release"):
        ledger_profile(Ledger().after(step(Exact())), DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("ledger", [FEW, MANY], ids=["few", "many"])
def test_a_profile_is_pld_at_every_delta(ledger):
    profile = ledger_profile(ledger, 1e-6)
    for delta in (0.1, 1e-2, 1e-4, 1e-6):
        epsilon = pld(ledger, delta)
        found = float(profile.at(np.array(epsilon)))
        assert found < delta * 1.02
        assert found > delta * (1 - 1e-6) or epsilon == 0
    assert rdp(ledger, 1e-6) > pld(ledger, 1e-6)
