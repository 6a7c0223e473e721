"""Local batches: uniform subsets of a user's examples, whoever else is there."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbench.learning.data.derive.users import iid
from dpbench.learning.data.examples import Batch, Split
from dpbench.step.mechanism.streams import seeded
from dpbench.step.methods.dp_fedsgd import local_batches


def population(number=12, n=120, spread=1.0):
    """Users of examples whose inputs are their numbers."""
    numbers = torch.arange(n)
    split = Split(numbers.float().unsqueeze(1), numbers % 4, torch.zeros_like(numbers))
    return iid(number, spread).of(split, seed=0)


def examples(batch: Batch) -> list[list[int]]:
    """The numbers of each user's examples."""
    rows = zip(batch.inputs, batch.present, strict=True)
    return [row[here, 0].int().tolist() for row, here in rows]


def drawn(batch: Batch, size: int, seed: int = 0, step: int = 0) -> list[list[int]]:
    return examples(local_batches(batch, size, seed, step))


EVERYBODY = population().at(torch.arange(12))


@given(st.integers(1, 40), st.integers(0, 10**6), st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_a_local_batch_is_so_many_examples_of_its_user_each_once(size, seed, step):
    batch = local_batches(EVERYBODY, size, seed, step)
    assert batch.inputs.shape[1] <= size
    for some, owned in zip(examples(batch), examples(EVERYBODY), strict=True):
        assert len(some) == min(size, len(owned))
        assert set(some) <= set(owned)
        assert some == [one for one in owned if one in set(some)]
    # What only fills up must not be anybody else's.
    for row, owned in zip(batch.inputs, examples(EVERYBODY), strict=True):
        assert set(row[:, 0].int().tolist()) <= set(owned)
    assert torch.equal(batch.targets, batch.inputs[..., 0].long() % 4)
    assert torch.equal(batch.users, EVERYBODY.users)


def test_few_examples_are_all_kept_and_an_empty_batch_draws_nothing():
    most = int(EVERYBODY.sizes.max())
    assert local_batches(EVERYBODY, most, 0, 0) is EVERYBODY
    halves = drawn(EVERYBODY, most - 1)
    assert sum(some == all_ for some, all_ in zip(halves, examples(EVERYBODY), strict=True)) == 11
    assert len(local_batches(EVERYBODY.each(lambda t: t[:0]), 1, 0, 0)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_subsets_are_alike(size):
    batch = population(2, 10, 0.0).at(torch.tensor([1]))
    (owned,) = examples(batch)
    found = [tuple(drawn(batch, size, step=step)[0]) for step in range(2000)]
    counts = [found.count(subset) for subset in combinations(owned, size)]
    assert sum(counts) == 2000
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.long
def test_users_steps_and_seeds_draw_independently():
    """Whether the first of a user's two examples is drawn, in 5,000 steps."""
    batch = population(3, 6, 0.0).at(torch.arange(3))
    firsts = [owned[0] for owned in examples(batch)]

    def coins(seed):
        steps = [drawn(batch, 1, seed, step) for step in range(5000)]
        return torch.tensor([[some == [one] for some, one in zip(row, firsts, strict=True)]
                             for row in steps])  # fmt: skip

    zero, one = coins(0), coins(1)
    pairs = [(zero[:, 0], zero[:, 1]), (zero[:-1, 2], zero[1:, 2]), (zero[:, 1], one[:, 1])]
    for some, other in pairs:
        assert stats.binomtest(int((some == other).sum()), len(some)).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 3])
def test_a_user_s_draws_do_not_depend_on_other_users(size):
    """Or taking one away would move the others too, and the bound would bound nothing."""
    together = drawn(EVERYBODY, size, seed=3, step=7)
    for k in range(12):
        alone = population().at(torch.tensor([k]))
        assert drawn(alone, size, seed=3, step=7) == [together[k]]
    parts = [some for part in EVERYBODY.split(5) for some in drawn(part, size, seed=3, step=7)]
    assert parts == together


def test_a_draw_is_the_first_of_an_order_of_its_own_stream():
    """By a sort in plain Python of the 64-bit numbers that seed, step and user lead to."""
    owned = examples(EVERYBODY)
    for k, some in enumerate(drawn(EVERYBODY, 3, seed=5, step=9)):
        bits = seeded("local batches", 5, f"9/{k}", torch.device("cpu")).bits(len(owned[k]))
        first = sorted(range(len(owned[k])), key=bits.tolist().__getitem__)[:3]
        assert some == [owned[k][place] for place in sorted(first)]
