"""Samplers: batches are drawn by the law that the ledger is told."""

from itertools import islice

import pytest
import torch
from scipy import stats

from dpbench.privacy.ledger import Allocation, Poisson, Shuffled, TruncatedPoisson
from dpbench.step.mechanism import sampling
from dpbench.step.mechanism.sampling import (
    SAMPLERS,
    AllocationSampler,
    PoissonSampler,
    ShuffledSampler,
    TruncatedSampler,
    make_sampler,
    poisson_rate,
)
from dpbench.step.mechanism.streams import Stream, seeded, uniforms
from dpbench.system.errors import UserError

SIZE, BATCH, STEPS = 40, 10, 4000
LIMIT = 12


def stream(seed: int) -> Stream:
    return seeded("batches", seed, "", torch.device("cpu"))


def inclusion(sampler, steps: int = STEPS, size: int = SIZE, seed: int = 0) -> torch.Tensor:
    """Whether each example was in each batch: [steps, size]."""
    rows = torch.zeros(steps, size, dtype=torch.bool)
    draws = sampler.batches(size, stream(seed))
    for row, indices in zip(rows, islice(draws, steps), strict=True):
        row[indices] = True
    return rows


def sampler_of(name: str, size: int = SIZE, batch: int = BATCH):
    options = {"batch_limit": LIMIT} if name == "truncated" else {}
    return make_sampler(name, size, batch, "example", 1, **options)


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


@pytest.mark.slow
def test_empty_batches_occur_as_they_should_and_the_expected_size_is_public():
    empty = (~inclusion(PoissonSampler(6, 2), size=6).any(1)).sum()
    assert empty > 0
    assert binomial_p(empty, STEPS, (2 / 3) ** 6) > 1e-3
    # Where sub-sampling makes the real n vary with the seed, rate and divisor must not follow it.
    sampler = PoissonSampler(SIZE, BATCH)
    rate = inclusion(sampler, size=SIZE + 8).double().mean()
    assert rate == pytest.approx(0.25, abs=0.01)
    assert sampler.expected_batch_size == BATCH


def test_the_first_and_the_last_are_drawn_like_all_others_and_a_rate_of_one_takes_everybody():
    sampler, steps = PoissonSampler(5000, 100), 300
    rows = inclusion(sampler, steps, 5000)
    for part in (rows, rows[:, :200], rows[:, -200:]):
        assert binomial_p(part.sum(), part.numel(), 1 / 50) > 1e-3
    assert inclusion(PoissonSampler(SIZE, SIZE), steps=20).all()


@pytest.mark.parametrize("draws", [0, 30, 10_000])
def test_batches_computed_together_have_the_bits_of_those_drawn_one_by_one(draws, monkeypatch):
    """Also where some of them need more draws than usual, which moves all that follow."""
    monkeypatch.setattr(sampling, "TOGETHER", draws)
    usual = sampling._usual_draws
    monkeypatch.setattr(sampling, "_usual_draws", lambda n, rate: usual(n, rate) // 3)
    together, alone = stream(3), stream(3)
    for size, batch in [(SIZE, BATCH), (SIZE, 3), (3, 2)] * 20:
        rate = poisson_rate(size, batch)
        for picks in sampling.poisson_batches(size, rate, 25, together):
            assert torch.equal(picks, sampling.poisson_indices(size, rate, alone))
        assert together.state_dict() == alone.state_dict()


def test_coins_drawn_between_batches_are_independent_of_them(monkeypatch):
    """As by methods that keep a share of each group, where a batch takes more draws than usual."""
    monkeypatch.setattr(sampling, "_usual_draws", lambda size, rate: 2)
    draws = stream(0)
    batches = PoissonSampler(2, 1).batches(2, draws)
    coins = torch.cat([uniforms(draws, len(batch)) for batch in islice(batches, STEPS)])
    assert stats.kstest(coins, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("size", "batch", "steps"), [(23_512, 256, 92), (48_336, 256, 189), (100, 30, 4), (7, 7, 1)]
)
def test_the_rate_is_one_over_the_steps_of_an_epoch(size, batch, steps):
    sampler = PoissonSampler(size, batch)
    assert sampler.steps_per_epoch == steps
    assert sampler.law == Poisson(1 / steps)
    assert sampler.expected_batch_size == pytest.approx(size / steps)
    assert poisson_rate(size, batch) == 1 / steps


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_batch_larger_than_the_data_is_refused(name):
    with pytest.raises(UserError, match="batch_size=11 is larger than the 10"):
        sampler_of(name, 10, 11)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_seed_makes_the_batches(name):
    one, same, other = (inclusion(sampler_of(name), 20, seed=s) for s in (5, 5, 6))
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
    sampler, draw = sampler_of(name), stream(5)
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


@pytest.fixture(scope="module")
def truncated() -> torch.Tensor:
    return inclusion(TruncatedSampler(SIZE, BATCH, batch_limit=LIMIT))


@pytest.mark.slow
def test_a_batch_is_never_larger_than_its_limit_and_is_cut_as_often_as_the_law_says(truncated):
    sizes = truncated.sum(1)
    assert sizes.max() == LIMIT
    assert binomial_p((sizes == LIMIT).sum(), STEPS, stats.binom.sf(LIMIT - 1, SIZE, 0.25)) > 1e-3
    assert binomial_p((sizes == 8).sum(), STEPS, stats.binom.pmf(8, SIZE, 0.25)) > 1e-3
    assert TruncatedSampler(SIZE, BATCH, batch_limit=LIMIT).expected_batch_size == BATCH


def test_truncated_batches_are_random_subsets(truncated):
    numbers = range(SIZE + 1)
    mean = sum(min(k, LIMIT) * stats.binom.pmf(k, SIZE, 0.25) for k in numbers)
    assert all(binomial_p(row.sum(), STEPS, mean / SIZE) > 1e-3 / SIZE for row in truncated.T)
    full = truncated[truncated.sum(1) == LIMIT]
    assert all(binomial_p(row.sum(), len(full), LIMIT / SIZE) > 1e-3 / SIZE for row in full.T)


def test_without_truncation_batches_are_poisson_samples_and_larger_data_are_refused():
    whole = inclusion(TruncatedSampler(SIZE, BATCH, batch_limit=SIZE), steps=50)
    assert torch.equal(whole, inclusion(PoissonSampler(SIZE, BATCH), steps=50))
    sampler = TruncatedSampler(SIZE, BATCH, batch_limit=LIMIT)
    assert sampler.law == TruncatedPoisson(0.25, LIMIT, SIZE)
    with pytest.raises(UserError, match="more examples than the declared 40"):
        sampler.batches(SIZE + 1, stream(0))


def test_a_limit_is_needed_and_one_far_from_the_expected_size_is_named():
    with pytest.raises(UserError, match="batch_limit: at 675 hardly any batch of about 509 users"):
        make_sampler("truncated", 48_336, 512, "user", 1)
    assert stats.binom.sf(674, 48_336, 1 / 95) < 1e-12
    with pytest.warns(UserWarning, match="batch_limit=9 cuts most .* size of 10: at 32 hardly"):
        TruncatedSampler(SIZE, BATCH, batch_limit=BATCH - 1)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_each_example_is_in_exactly_so_many_batches_of_an_epoch(turns):
    sampler = AllocationSampler(SIZE, BATCH, participations=turns)
    assert sampler.law == Allocation(4 * turns, turns)
    assert (sampler.steps_per_epoch, sampler.expected_batch_size) == (4 * turns, BATCH)
    epochs = inclusion(sampler, steps=3 * 4 * turns).view(3, 4 * turns, SIZE)
    assert epochs.sum(1).eq(turns).all()
    assert not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize("turns", [1, 2])
def test_all_places_of_an_epoch_are_equally_likely(turns):
    sampler = AllocationSampler(20_000, 5_000, participations=turns)
    rows = inclusion(sampler, sampler.steps_per_epoch, 20_000)
    _, counts = rows.T.unique(dim=0, return_counts=True)
    assert len(counts) == (4 if turns == 1 else 28)  # 2 of 8
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.slow
def test_examples_are_allocated_independently_of_each_other():
    # Slices of a permutation would have pairs together with 9/39 of a quarter, and no empty batch.
    rows = inclusion(AllocationSampler(SIZE, BATCH))
    together = sum((rows[:, i] & rows[:, i + 1]).sum() for i in range(0, SIZE, 2))
    assert binomial_p(together, STEPS * SIZE // 2, 1 / 16) > 1e-3
    empty = (~inclusion(AllocationSampler(6, 2), steps=3 * STEPS, size=6).any(1))[::3].sum()
    assert binomial_p(empty, STEPS, (2 / 3) ** 6) > 1e-3


@pytest.mark.parametrize(
    ("name", "option"), [("poisson", "batch_limit"), ("truncated", "participations")]
)
def test_a_setting_of_another_sampler_is_refused(name, option):
    with pytest.raises(UserError, match=f"{option} belongs to sampler="):
        make_sampler(name, SIZE, BATCH, "example", 1, **{option: 3})


@pytest.mark.parametrize("name", ["truncated", "allocation"])
def test_correlated_noise_is_refused_by_laws_without_an_account_of_it(name):
    with pytest.raises(UserError, match=f"sampler={name} cannot be accounted for with noise"):
        make_sampler(name, SIZE, 5, "example", 4)
