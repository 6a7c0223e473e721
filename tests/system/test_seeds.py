import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpbench.system.seeds import derived, generator

CPU = torch.device("cpu")
PURPOSES = ["sampling", "noise", "counts", "initial weights", "dropout"]
numbers = st.integers(0, 2**64)


def draw(seed, purpose):
    return torch.rand(8, generator=generator(seed, purpose, CPU)).tolist()


@pytest.mark.parametrize(
    ("seed", "purpose", "expected"),
    [
        (0, "noise", 4105054413590445668),
        (0, "sampling", 367838662404703556),
        (7, "initial weights", 326242880108516224),
    ],
)
def test_derived_seeds_never_change(seed, purpose, expected):
    assert derived(seed, purpose) == expected


@given(numbers, numbers, st.sampled_from(PURPOSES), st.sampled_from(PURPOSES))
def test_seeds_and_purposes_give_different_numbers(first, second, one, other):
    same = (first, one) == (second, other)
    assert (derived(first, one) == derived(second, other)) == same


@given(numbers, st.sampled_from(PURPOSES))
def test_every_derived_seed_is_accepted_by_torch(seed, purpose):
    assert 0 <= derived(seed, purpose) < 2**63
    generator(seed, purpose, CPU)


def test_purpose_and_seed_cannot_be_confused():
    assert derived(11, "a") != derived(1, "a/1")


def test_the_same_purpose_draws_the_same_again():
    assert draw(3, "noise") == draw(3, "noise")
    assert draw(3, "noise") != draw(4, "noise")


def test_draws_for_one_purpose_do_not_affect_another():
    noise, counts = generator(0, "noise", CPU), generator(0, "counts", CPU)
    torch.rand(1000, generator=counts)
    torch.rand(1000)
    assert torch.rand(8, generator=noise).tolist() == draw(0, "noise")


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    draw(0, "noise")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_secret_is_more_than_the_32_bits_that_torch_takes_of_a_seed():
    secret = 2**255 + 5
    words = np.frombuffer(hashlib.shake_256(f"dropout/{secret}".encode()).digest(2496), "<u4")
    other = np.random.MT19937()
    other.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    expected = (other.random_raw(1500) % 2**24 / 2**24).tolist()
    draws = generator(secret, "dropout", CPU)
    assert torch.rand(1500, generator=draws).tolist() == expected
    tried = torch.Generator().manual_seed(draws.initial_seed() % 2**32)
    assert torch.rand(8, generator=tried).tolist() != draw(secret, "dropout")
