"""Users: every example is somebody's, and what a user has is what the seed dealt out."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.data.derive.users import dirichlet, iid, shards, units_of
from dpbench.learning.data.examples import Split
from dpbench.system.errors import UserError

DEALS = {
    "iid": iid(12, 0.0),
    "iid, ragged": iid(12, 1.0),
    "dirichlet": dirichlet(12, 0.7, 0.3),
    "dirichlet, all alike": dirichlet(12, 0.0, 1e6),
    "shards": shards(12, 2),
}
deals = pytest.mark.parametrize("users", DEALS.values(), ids=DEALS)


def examples(n=120, classes=4):
    labels = torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(0))
    return Split(torch.arange(n).float().unsqueeze(1), labels, torch.zeros(n, dtype=torch.long))


def owned(population):
    """The numbers of each user's examples."""
    return [members.tolist() for members in population.members.split(population.sizes.tolist())]


def classes_of_a_user(users, split):
    counts = [len(set(split.targets[part].tolist())) for part in owned(users.of(split, 0))]
    return sum(counts) / len(counts)


@deals
def test_every_example_belongs_to_one_user_by_the_seed_alone(users):
    parts = owned(users.of(examples(), seed=3))
    assert len(parts) == 12
    assert sorted(number for part in parts for number in part) == list(range(120))
    torch.manual_seed(1)
    first, again, other = (owned(users.of(examples(), seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other


@deals
@pytest.mark.parametrize("n", [120, 12, 131])
def test_users_have_as_many_examples_as_was_said_in_public(users, n):
    assert sorted(map(len, owned(users.of(examples(n), seed=3)))) == sorted(users.sizes(n))
    assert min(users.sizes(n)) >= 1


@given(st.integers(1, 40), st.floats(0, 3), st.integers(0, 500))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_sizes_add_up_and_are_as_unequal_as_the_spread(number, spread, more):
    sizes = iid(number, spread).sizes(number + more)
    assert sum(sizes) == number + more
    assert min(sizes) >= 1
    assert spread > 0 or max(sizes) - min(sizes) <= 1


def test_the_spread_is_that_of_the_logarithm_of_sizes():
    logs = torch.tensor(iid(200, 0.6).sizes(100_000), dtype=torch.float64).log()
    assert logs.std() == pytest.approx(0.6, rel=0.02)


def test_as_many_users_as_examples_are_the_examples_in_their_order():
    population = iid(120, 0.0).of(examples(), seed=5)
    assert owned(population) == [[number] for number in range(120)]
    batch = population.at(torch.tensor([3, 7]))
    assert torch.equal(batch.inputs.squeeze(1), examples().at(torch.tensor([3, 7])).inputs)
    assert batch.present.tolist() == [[True], [True]]


def test_a_batch_holds_its_users_examples_and_fills_up_with_their_own():
    split = examples()
    population = iid(12, 1.0).of(split, seed=0)
    chosen = torch.tensor([0, 5, 11])
    batch = population.at(chosen)
    assert batch.inputs.shape[1] == population.sizes[chosen].max()
    assert torch.equal(batch.sizes, population.sizes[chosen])
    parts = owned(population)
    for i, user in enumerate(chosen):
        here = batch.present[i]
        assert batch.inputs[i, here, 0].tolist() == parts[user]
        assert torch.equal(batch.targets[i, here], split.targets[parts[user]])
        # What only fills up must not be anybody else's.
        assert set(batch.inputs[i, ~here, 0].tolist()) <= {parts[user][0]}
    assert len(population.at(torch.zeros(0, dtype=torch.long))) == 0


def test_labels_are_dealt_as_each_way_says():
    split = examples(1200, classes=10)
    mixed, alike = (classes_of_a_user(u, split) for u in (dirichlet(12, 0, 0.1), iid(12, 0)))
    assert mixed < 6 < 9.5 < alike
    assert classes_of_a_user(dirichlet(12, 0, 1e5), split) > 9.5
    assert classes_of_a_user(shards(12, 1), split) <= 2  # a piece of 100 meets one edge at most
    assert classes_of_a_user(shards(12, 2), split) <= 4


def test_the_users_of_one_class_are_drawn_around_the_frequencies():
    split = examples(4000, classes=2)
    share = split.targets.float().mean()
    population = dirichlet(40, 0.0, 50.0).of(split, 0)
    shares = torch.stack([split.targets[part].float().mean() for part in owned(population)])
    # A Dirichlet law with concentration 50, and 100 draws from each: 0.086 is its deviation.
    assert shares.mean() == pytest.approx(float(share), abs=1e-6)
    assert 0.05 < shares.std() < 0.13


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: iid(0, 0.0), "users.number must be a whole number of at least 1"),
        (lambda: iid(2.0, 0.0), "users.number must be a whole number"),
        (lambda: iid(2, -1.0), "users.spread must be a number from 0 to 10"),
        (lambda: iid(2, "1"), "users.spread must be a number"),
        (lambda: dirichlet(2, 0.0, 0), "users.concentration must be a positive"),
        (lambda: shards(2, 0), "users.each must be a whole number from 1"),
        (lambda: iid(121, 0.0).of(examples(), 0), "users.number=121 is more than the 120"),
    ],
)
def test_users_that_cannot_be_are_refused(make, said):
    with pytest.raises(UserError, match=said):
        make()


def test_units_are_what_is_public():
    dataset = SimpleNamespace(name="made", train_size=10, task="regression")
    assert units_of(dataset, None)[:2] == ("example", 10)
    assert units_of(dataset, iid(3, 0.0)) == ("user", 3, [3, 4, 3])
    with pytest.raises(UserError, match="made has no classes to assign users by: use users=iid"):
        units_of(dataset, shards(3, 2))
    with pytest.raises(UserError, match="choose at most 10"):
        units_of(dataset, iid(11, 0.0))
