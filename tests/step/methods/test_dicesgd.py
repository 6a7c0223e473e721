"""Error feedback: the steps by hand, what an example can move, and the account by brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import (
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    from_plain,
    to_plain,
)
from dpbench.step.clipping import Abadi
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.dicesgd import ErrorFeedback, dicesgd
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError
from tests.steps import noiseless, theta


def clipped(vector, bound):
    return vector * min(1.0, bound / float(vector.norm())) if vector.norm() else vector


# The authors' pseudo-code, in units of the sum.
def test_steps_are_those_of_the_algorithm(step_of, batch_of):
    step = step_of(noiseless(dicesgd(0.5, 2.0, 0.5)), expected=4.0, lr=0.3, multiplier=0.0)
    error = torch.zeros_like(theta(step))
    for seed in range(5):
        batch, now = batch_of(5, seed=seed), theta(step)
        rows = step.engine(batch).stack()
        v = sum(clipped(row, 0.5) for row in rows) + clipped(error, 2.0)
        error = error + rows.sum(0) - v
        step(batch)
        assert torch.allclose(theta(step), now - 0.3 * v / 4, rtol=1e-9, atol=1e-12)


def test_clipped_parts_are_added_to_later_sums(step_of, batch_of):
    """With a large C2, the sum of all steps is that of the gradients, but for the last error."""
    step = step_of(noiseless(dicesgd(0.1, 1e9, 0.5)), expected=1.0, lr=0.0, multiplier=0.0)
    total, plain = torch.zeros_like(theta(step)), torch.zeros_like(theta(step))
    for seed in range(4):
        step(batch_of(5, seed=seed))
        total += step.released.gradient
        plain += step.engine(batch_of(5, seed=seed)).stack().sum(0)
    assert torch.allclose(total + step.clip.error, plain, rtol=1e-9)


@pytest.mark.parametrize("error_bound", [0.01, 0.5, 3.0])
def test_an_example_moves_a_sum_by_c1_and_through_the_error_by_2_c2(step_of, batch_of, error_bound):
    """Through whatever earlier batches: with an example or without it in each of them."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(6):
        clips = [ErrorFeedback(Abadi(0.5), error_bound, 0.5) for _ in range(2)]
        step = step_of(dicesgd(0.5, error_bound, 0.5))
        for seed in range(4):
            batch = batch_of(6, seed=seed)
            batch.inputs.mul_(10 ** float(torch.randn(1, generator=draw)))
            fewer = batch.each(lambda t: t[:-1])
            in_batch = bool(torch.rand(1, generator=draw) < 0.5)
            sums = []
            for k, part in enumerate((batch if in_batch else fewer, fewer)):
                gradients, clip = step.engine(part), clips[k]
                factors = clip.factors(clip.norms(gradients), part.groups)
                total = clip.reduce(gradients, factors)
                sums.append(clip.finish(total))
                clips[k] = clip.carried(total)
            limit = 0.5 * in_batch + 2 * error_bound * (seed > 0)
            assert (sums[0] - sums[1]).norm() <= limit * (1 + 1e-9)


def test_the_error_is_private_state_that_comes_back_and_stays_finite(step_of, batch_of):
    step = step_of(dicesgd(0.1, 0.5, 0.5))
    assert state_of(step.clip) == {}
    step(batch_of(4))
    back = restore_state(step.method.clip, state_of(step.clip), torch.device("cpu"))
    assert torch.equal(back.error, step.clip.error)
    assert back.error.dtype == torch.float64
    assert float(back.error.norm()) > 0
    step, batch = step_of(dicesgd(0.1, 0.5, 0.5)), batch_of(5)
    batch.inputs[0], batch.inputs[1] = torch.inf, 1e9
    for _ in range(3):
        step(batch)
    assert step.clip.error.isfinite().all()
    assert theta(step).isfinite().all()
    # Each gradient may be a number, and their sum in float32 none.
    clip = dicesgd(1e9, 2.0, 0.5).clip
    for plain in (math.inf, -math.inf, math.nan):
        clip = clip.carried(torch.tensor([[1.0, 1.0, 1.0], [plain, 3.0, 1.0]]))
        assert clip.error.isfinite().all()
        moved = clip.finish(torch.zeros(2, 3))
        assert 0 < float(moved.norm()) <= 2.0 + 1e-6


def ledger_of(method, sigma, rate, steps):
    return Ledger().after(Step(Poisson(rate), method.releases(sigma)), steps)


def test_the_ledger_has_both_parts_with_a_bound_of_the_error():
    sum_, error = dicesgd(0.5, 0.02, 0.3).releases(1.7)
    assert (sum_.unsampled, error.unsampled) == (False, True)
    own = 1.7 * 0.5 * math.sqrt(0.7)
    fed_back = error.mechanism.noise_multiplier * 2 * 0.02
    assert sum_.mechanism.noise_multiplier * 0.5 == pytest.approx(own)
    assert math.hypot(own, fed_back) == pytest.approx(1.7 * 0.5)
    with pytest.raises(UserError, match="bound of the error"):
        dicesgd(1.0, error_bound=0.0, account_share=0.5)


@pytest.mark.slow
def test_epsilon_agrees_with_a_composition_by_hand():
    method, sigma, rate, steps = dicesgd(1.0, 0.01, 0.5), 1.3, 0.02, 300
    sampled = GaussianMechanism(1.3 * 0.5**0.5)
    whole = GaussianMechanism(1.3 * 0.5**0.5 / 0.02)
    by_hand = Ledger().after(Step(Poisson(rate), (Release("a", sampled),)), steps)
    by_hand = by_hand.after(Step(Poisson(1.0), (Release("b", whole),)), steps)
    book = ledger_of(method, sigma, rate, steps)
    for accountant in (pld, rdp):
        assert accountant(book, 1e-5) == accountant(by_hand, 1e-5)
        assert accountant(book, 1e-5) > accountant(ledger_of(dpsgd(1.0, "corrected"), 1.3, rate,
            steps), 1e-5)  # fmt: skip
    assert from_plain(to_plain(book)) == book


# Two steps in one dimension, on a grid: the example is in batch 1 or not, which moves the error of
# step 2 by 2 C2 or not, in the direction that the attacker likes least or best, and in batch 2 or
# not. No divergence at the chosen orders exceeds that of the ledger.
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("rate", "c2"), [(0.3, 0.3), (0.5, 0.05), (0.9, 1.0)])
def test_brute_force_finds_no_more_than_the_ledger_accounts_for(rate, c2, sign):
    sigma, delta = 1.5, 1e-2
    y = np.linspace(-14, 16, 1501)
    cell = (y[1] - y[0]) ** 2
    with_it = np.zeros((len(y), len(y)))
    for one, two in itertools.product((0, 1), repeat=2):
        weight = (rate if one else 1 - rate) * (rate if two else 1 - rate)
        first = stats.norm.pdf(y, one, sigma)
        second = stats.norm.pdf(y, two + sign * 2 * c2 * one, sigma)
        with_it += weight * np.outer(first, second)
    without = np.outer(*[stats.norm.pdf(y, 0, sigma)] * 2)
    claimed = pld(ledger_of(dicesgd(1.0, c2, 0.5), sigma, rate, 2), delta)
    for p, q in ((with_it, without), (without, with_it)):
        assert np.maximum(p - math.exp(claimed) * q, 0).sum() * cell <= delta


def test_without_the_error_in_the_ledger_brute_force_would_spend_more():
    """So that the test above can fail: many steps of the longest shift, against dpsgd's account."""
    rate, sigma, steps, c2, delta = 0.05, 2.0, 400, 0.5, 1e-5
    mu = math.sqrt(steps - 1) * 2 * c2 / sigma  # of all later steps, once it was in the first batch
    usual = pld(ledger_of(dpsgd(1.0, "corrected"), sigma, rate, steps), delta)
    profile = stats.norm.cdf(mu / 2 - usual / mu) - math.exp(usual) * stats.norm.cdf(
        -mu / 2 - usual / mu
    )
    assert rate * profile > 100 * delta


def test_as_published_noise_is_doubled_the_error_bounded_and_nothing_proven(step_of, batch_of):
    method = noiseless(dicesgd(0.5, 9.0, 0.5, "paper"))
    other = noiseless(dicesgd(0.5, 0.5, 0.5))
    steps = [step_of(one, expected=4.0, lr=0.3, multiplier=0.0) for one in (method, other)]
    for seed in range(3):
        for step in steps:
            step(batch_of(5, seed=seed))
    assert torch.equal(theta(steps[0]), theta(steps[1]))
    assert float(steps[0].clip.error.norm()) > 0
    paper = dicesgd(0.5, 0.01, 0.5, "paper")
    assert paper.clip.sensitivity.bound == 2 * 0.5
    assert paper.releases(1.7) == dpsgd(0.5, "corrected").releases(1.7)
    assert paper.guarantee.level == "none"
    assert dicesgd(0.5, 0.01, 0.5).guarantee.level == "proven"
