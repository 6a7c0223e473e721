import torch
from hypothesis import given
from hypothesis import strategies as st

from dpbench.learning.data.examples import Split
from dpbench.learning.data.splits import shuffle_and_split, subsample
from dpbench.system.seeds import numpy_generator


def numbered(count: int) -> Split:
    rows = torch.arange(count)
    return Split(rows.float().unsqueeze(1), rows, rows)


@given(count=st.integers(0, 200), share=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
def test_every_example_lands_in_exactly_one_part(count, share, seed):
    data = shuffle_and_split(numbered(count), share, seed)
    assert len(data.test) == int(share * count)
    rows = torch.cat([data.train.targets, data.test.targets])
    assert rows.sort().values.tolist() == list(range(count))


def test_parts_stay_together_and_thinning_keeps_its_share():
    train = shuffle_and_split(numbered(50), 0.2, seed=1).train
    assert torch.equal(train.inputs[:, 0].long(), train.targets)
    assert torch.equal(train.groups, train.targets)
    examples = numbered(20_000)
    kept = subsample(examples, examples.targets % 2 == 0, 0.3, seed=0).targets
    assert (kept % 2 == 1).sum() == 10_000
    assert abs((kept % 2 == 0).sum() - 3000) < 5 * (10_000 * 0.3 * 0.7) ** 0.5


def test_draws_of_purposes_and_seeds_are_their_own_and_the_same_everywhere():
    draws = {
        tuple(numpy_generator(seed, purpose).integers(0, 1000, 5))
        for seed in (0, 1)
        for purpose in ("split", "thin")
    }
    assert len(draws) == 4
    assert numpy_generator(0, "split").integers(0, 1000, 3).tolist() == [267, 526, 233]
