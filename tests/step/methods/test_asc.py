"""ASC: its shares, losses and batches beside slow references, and its account."""

import itertools
import math

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from dpbench.privacy.accountants import ORDERS, gdp, pld, rdp, renyi_divergences
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import (
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    TruncatedPoisson,
)
from dpbench.privacy.renyi import smallest_epsilon
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.start import start_training
from dpbench.step.methods.asc import asc
from dpbench.step.methods.dpsgd import dpsgd
from tests.problems import Made, problem

DELTA, WHOLE = 1e-5, range(2, 64)
THREE = problem(Made(("a", "b", "c")))


def method(bound=0.5, least=0.25, rate=0.1, most=3.0, ratio=10.0):
    return asc(bound, least, rate, most, ratio).bind(THREE)


answers = st.lists(st.floats(-20, 200), min_size=6, max_size=6)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(answers, max_size=4), st.floats(0.05, 1), st.floats(0, 3))
def test_shares_follow_the_losses(given_answers, least, rate):
    clip, shares = method(least=least, rate=rate).clip, [1.0] * 3
    for answer in given_answers:
        clip = clip.updated(torch.tensor(answer, dtype=torch.float64), 8.0)
        losses = [3 * min(max(answer[g] / max(answer[3 + g], 1), 0), 1) for g in range(3)]
        grown = [p * math.exp(rate * loss) for p, loss in zip(shares, losses, strict=True)]
        shares = [max(least, p / max(grown)) for p in grown]
    assert clip.group_shares.tolist() == pytest.approx(shares, rel=1e-5)
    assert clip.sensitivity.bound == pytest.approx(0.5 / least)
    norms, groups = torch.full((3,), 1e6), torch.arange(3)
    reach = (norms * clip.factors(norms, groups)).tolist()
    assert reach == pytest.approx([0.5 / p for p in shares], rel=1e-4)
    assert max(reach) <= clip.sensitivity.bound * (1 + 1e-6)


def test_an_example_adds_its_loss_and_itself_in_proportion_to_its_bound(step_of, batch_of):
    own = method(most=2.0)
    step, batch = step_of(own), batch_of(9, groups=3)
    batch.inputs[4] = math.nan
    clip = own.clip.updated(torch.tensor([9.0, 3, 1, 9, 9, 9], dtype=torch.float64), 8.0)
    gradients = own.gradient(step.engine, batch, clip, step.released)
    expected = [[0.0] * 3, [0.0] * 3]
    for loss, group in zip(gradients.losses.tolist(), batch.groups.tolist(), strict=True):
        if math.isfinite(loss):
            weight = 0.25 / clip.group_shares[group].item() / math.sqrt(2)
            expected[0][group] += weight * min(max(loss, 0) / 2, 1)
            expected[1][group] += weight
    assert gradients.counts.view(2, 3).tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.slow
def test_500_neighbours_move_sum_and_losses_in_proportion_to_the_bound_of_their_group(
    step_of, batch_of
):
    own, draw = method(), torch.Generator().manual_seed(0)
    step, largest = step_of(own), 0.0
    for seed in range(100):
        batch = batch_of(5, groups=3, seed=seed)
        batch.inputs.mul_(10.0 ** (seed % 7 - 3))
        step.clip = clip = own.clip.updated(20 * torch.rand(6, generator=draw).double(), 8.0)
        sums = [
            step.clipped_sum(own.gradient(step.engine, part, clip, step.released), part)
            for part in (batch, *(batch.each(lambda t, i=i: delete(t, i)) for i in range(5)))
        ]
        for group, other in zip(batch.groups.tolist(), sums[1:], strict=True):
            reach = 0.25 / clip.group_shares[group].item()
            moved = (sums[0].total - other.total).norm() / clip.sensitivity.bound
            counted = (sums[0].exact_counts - other.exact_counts).norm()
            assert moved <= reach * (1 + 1e-9)
            assert counted <= reach * (1 + 1e-9)
            largest = max(largest, float(moved) / reach)
    assert largest > 0.99


def delete(values, place):
    return torch.cat([values[:place], values[place + 1 :]])


def test_equal_rates_and_bounds_are_dpsgd():
    one, usual = method(least=1.0).clip, dpsgd(0.5, "corrected").clip
    one = one.updated(torch.tensor([1.0, 2, 3, 4, 5, 6]), 8.0)
    norms, groups = torch.tensor([0.1, 0.5, 30.0]), torch.arange(3)
    assert torch.equal(one.factors(norms, groups), usual.factors(norms, groups))
    assert one.sensitivity == usual.sensitivity
    assert one.group_shares.tolist() == [1.0] * 3


def training(folder, *overrides):
    words = ["method=asc", "model=logistic", "epochs=1", "batch_size=500", "privacy=noise1"]
    run, planned = prepare(run_config([*words, *overrides]))
    return start_training(run, planned, run.load(folder), ResourceUsage(torch.device("cpu")))


@pytest.mark.sampled(1)
@pytest.mark.slow
def test_batches_have_each_group_at_its_rate(tmp_path, monkeypatch):
    started = training(tmp_path)
    batches, groups = started.batches, started.batches.train.groups
    shares = torch.linspace(0.25, 1, 10)
    batches.shares = lambda: shares
    drawn = torch.zeros(10)
    for _ in range(300):
        drawn += torch.bincount(next(batches).groups, minlength=10)
    rate = started.plan.sampler.law.rate
    expected = 300 * rate * shares * torch.bincount(groups, minlength=10)
    assert ((drawn - expected).abs() < 4 * expected.sqrt()).all()


@pytest.mark.slow
def test_a_restored_training_draws_the_same_batches(tmp_path):
    whole, first, second = (training(tmp_path, "optimizer.lr=1") for _ in range(3))
    for step, _ in enumerate(whole):
        if step == 1:
            break
    for step, _ in enumerate(first):
        if step == 0:
            second.load_state_dict(first.state_dict())
            break
    next(iter(second))
    ends = [t.step.engine.parameters.theta for t in (whole, second)]
    assert torch.equal(*ends)
    assert not torch.equal(whole.step.clip.group_shares, torch.ones(10))


def divergence(rate, multiplier, order):
    """The Renyi divergence of a sampled Gaussian from the Gaussian, by the trapezoidal rule."""
    z = np.linspace(-40, 120, 20_001)
    likelihood = np.logaddexp(np.log1p(-rate), np.log(rate) + (z - 0.5 / multiplier) / multiplier)
    density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    return logsumexp(order * likelihood + density, b=z[1] - z[0]) / (order - 1)


@pytest.mark.parametrize("rate", [1e-3, 0.02, 0.3, 0.99])
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_more_sampling_with_smaller_bounds_costs_no_more_renyi_divergence(rate, multiplier):
    """By integrals, as accountants are not exact between whole orders: k times the rate with 1/k of
    the bound."""
    for order in (1.001, 1.1, 1.5, 2.0, 3.7, 8.0, 32.0):
        costs = [divergence(rate * 0.1 * k, multiplier * k, order) for k in (1, 1.5, 2, 4, 10)]
        assert all(b <= a * (1 + 1e-7) + 1e-12 for a, b in itertools.pairwise(costs))


def ledger(steps, multiplier, rate, share):
    law, (gradient, losses) = Poisson(rate), method(least=share).releases(multiplier)
    return Ledger().after(Step(law, (gradient, losses)), steps)


@pytest.mark.parametrize("rate", [0.01, 0.2])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.7])
@pytest.mark.parametrize("multiplier", [0.7, 1.5, 3.0, 6.0])
def test_any_path_of_shares_costs_at_most_the_ledger(rate, share, multiplier):
    """Each path accounted for by dp_accounting; that of the least share costs all of it."""
    steps, joint = 60, (multiplier**-2 + (10 * multiplier) ** -2) ** -0.5
    book = ledger(steps, multiplier, rate, share)
    costs = dict(zip(ORDERS, renyi_divergences(book).tolist(), strict=True))
    stated, _ = smallest_epsilon(WHOLE, [costs[order] for order in WHOLE], DELTA)
    for path in ([share], [1.0], [share, 0.5 * (1 + share), 1.0]):
        accountant = RdpAccountant(WHOLE)
        for p in path:
            event = PoissonSampledDpEvent(rate * p, GaussianDpEvent(joint * p / share))
            accountant.compose(event, steps // len(path))
        spent = accountant.get_epsilon(DELTA)
        assert spent <= stated * (1 + 1e-9)
        if path == [share]:
            assert spent == pytest.approx(stated, rel=1e-9)
    assert gdp(book, DELTA) == gdp(ledger(steps, multiplier, rate, 1.0), DELTA)


def releases(*mechanisms):
    step = Step(Poisson(0.1), tuple(Release("answer", m) for m in mechanisms))
    return Ledger().after(step, 10)


def test_pld_makes_no_use_of_the_share():
    books = [ledger(20, 1.0, 0.05, share) for share in (0.25, 1.0)]
    assert len({pld(book, DELTA) for book in books}) == 1
    assert rdp(books[0], DELTA) < pld(books[0], DELTA) < rdp(books[1], DELTA)


def test_a_share_counts_only_where_all_releases_have_it():
    half, whole = GaussianMechanism(2.0, share=0.5), GaussianMechanism(2.0)
    other = GaussianMechanism(2.0, share=0.8)
    costs = [renyi_divergences(releases(half, m)) for m in (half, other, whole)]
    assert (costs[0] < costs[1]).all()
    assert (costs[1] < costs[2]).all()
    assert (costs[2] == renyi_divergences(releases(whole, whole))).all()
    failing = releases(GaussianMechanism(2.0, share=0.5, failure=1e-9))
    assert rdp(failing, DELTA) == rdp(releases(GaussianMechanism(2.0, failure=1e-9)), DELTA)
    cut = Step(TruncatedPoisson(0.1, 50, 100), (Release("answer", half),))
    with pytest.raises(Unaccountable, match="only be accounted for under Poisson sampling"):
        rdp(Ledger().after(cut), DELTA)
