"""Samplers: batches are drawn by the law that the ledger is told."""

from itertools import islice

import pytest
import torch
from scipy import stats

from dpbench.errors import UserError
from dpbench.mechanism.sampling import SAMPLERS, PoissonSampler, ShuffledSampler, poisson_rate
from dpbench.mechanism.streams import Stream, seeded
from dpbench.privacy.ledger import Poisson, Shuffled

SIZE, BATCH, STEPS = 40, 10, 4000


def stream(seed: int) -> Stream:
    return seeded("batches", seed, "", torch.device("cpu"))


def inclusion(sampler, steps: int = STEPS, size: int = SIZE, seed: int = 0) -> torch.Tensor:
    """Whether each example was in each batch: [steps, size]."""
    rows = torch.zeros(steps, size, dtype=torch.bool)
    draws = sampler.batches(size, stream(seed))
    for row, indices in zip(rows, islice(draws, steps), strict=True):
        row[indices] = True
    return rows


@pytest.fixture(scope="module")
def poisson() -> torch.Tensor:
    return inclusion(PoissonSampler(SIZE, BATCH))


def binomial_p(successes: torch.Tensor, trials: int, rate: float) -> float:
    return stats.binomtest(int(successes), trials, rate).pvalue


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_each_example_is_in_a_batch_with_the_stated_probability(poisson, wrong):
    rate = PoissonSampler(SIZE, BATCH).law.rate
    assert rate == 0.25
    # 1e-3 over 40 examples, by Bonferroni.
    assert all(binomial_p(row.sum(), STEPS, rate) > 1e-3 / SIZE for row in poisson.T)
    assert all(binomial_p(row.sum(), STEPS, rate * wrong) < 1e-6 for row in poisson.T)


def test_examples_are_drawn_independently_of_each_other(poisson):
    # Pieces of a permutation have pairs together with 0.25 * 9/39 = 0.0577 instead of 0.0625.
    together = [(poisson[:, i] & poisson[:, i + 1]).sum() for i in range(0, SIZE, 2)]
    assert all(binomial_p(pair, STEPS, 0.25**2) > 1e-3 / len(together) for pair in together)
    assert binomial_p(sum(together), STEPS * len(together), 0.25**2) > 1e-3
    assert binomial_p(sum(together), STEPS * len(together), 0.0577) < 1e-6


def test_steps_are_drawn_independently_of_each_other(poisson):
    again = (poisson[1:] & poisson[:-1]).sum()
    assert binomial_p(again, (STEPS - 1) * SIZE, 0.25**2) > 1e-3


def test_batch_sizes_are_binomial(poisson):
    sizes = poisson.sum(1).double()
    variance = SIZE * 0.25 * 0.75
    assert abs(sizes.mean() - BATCH) < 4 * (variance / STEPS) ** 0.5
    assert sizes.var() == pytest.approx(variance, rel=0.1)


def test_empty_batches_occur_as_often_as_they_should():
    empty = (~inclusion(PoissonSampler(6, 2), size=6).any(1)).sum()
    assert empty > 0
    assert binomial_p(empty, STEPS, (2 / 3) ** 6) > 1e-3


def test_the_first_and_the_last_of_many_examples_are_drawn_like_all_others():
    sampler, steps = PoissonSampler(5000, 100), 300
    rows = inclusion(sampler, steps, 5000)
    for part in (rows, rows[:, :200], rows[:, -200:]):
        assert binomial_p(part.sum(), part.numel(), 1 / 50) > 1e-3


def test_a_rate_of_one_takes_everybody():
    assert inclusion(PoissonSampler(SIZE, SIZE), steps=20).all()


@pytest.mark.parametrize(
    ("size", "batch", "steps"), [(23_512, 256, 92), (48_336, 256, 189), (100, 30, 4), (7, 7, 1)]
)
def test_the_rate_is_one_over_the_steps_of_an_epoch(size, batch, steps):
    sampler = PoissonSampler(size, batch)
    assert sampler.steps_per_epoch == steps
    assert sampler.law == Poisson(1 / steps)
    assert sampler.expected_batch_size == pytest.approx(size / steps)
    assert poisson_rate(size, batch) == 1 / steps


def test_the_expected_batch_size_is_public_whatever_the_data_hold():
    # Where sub-sampling makes the real n vary with the seed, rate and divisor must not follow it.
    sampler = PoissonSampler(SIZE, BATCH)
    rate = inclusion(sampler, size=SIZE + 8).double().mean()
    assert rate == pytest.approx(0.25, abs=0.01)
    assert sampler.expected_batch_size == BATCH


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_batch_larger_than_the_data_is_refused(name):
    with pytest.raises(UserError, match="batch_size=11 is larger than the 10"):
        SAMPLERS[name](10, 11)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_seed_makes_the_batches(name):
    one, same, other = (inclusion(SAMPLERS[name](SIZE, BATCH), 20, seed=s) for s in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_shuffled_batches_share_out_each_epoch_and_say_so():
    sampler = ShuffledSampler(SIZE, BATCH)
    assert sampler.law == Shuffled(BATCH)
    rows = inclusion(sampler, steps=8)
    assert rows[:4].sum(0).eq(1).all()
    assert rows[4:].sum(0).eq(1).all()
    assert not torch.equal(rows[:4], rows[4:])


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_epoch_depends_on_nothing_but_the_generator_at_its_start(name):
    """Which is how a run that was put away within an epoch finds its place again."""
    sampler, draw = SAMPLERS[name](SIZE, BATCH), stream(5)
    each_epoch_anew = torch.cat(
        [
            indices
            for _ in range(3)
            for indices in islice(sampler.batches(SIZE, draw), sampler.steps_per_epoch)
        ]
    )
    without_end = sampler.batches(SIZE, stream(5))
    whole = torch.cat(list(islice(without_end, 3 * sampler.steps_per_epoch)))
    assert torch.equal(each_epoch_anew, whole)
