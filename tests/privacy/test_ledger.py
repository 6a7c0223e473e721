"""The ledger: what happened, in order, and nothing lost when equal steps are merged."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Shuffled, Step
from dpbench.system.errors import UserError


def step(sigma: float = 1.0, rate: float = 0.1) -> Step:
    return Step(Poisson(rate), (Release("gradient sum", GaussianMechanism(sigma)),))


def test_equal_steps_in_a_row_become_one_entry_and_others_keep_their_place():
    ledger = Ledger()
    for _ in range(5):
        ledger = ledger.after(step())
    assert ledger == Ledger(((step(), 5),)) == Ledger().after(step(), 5)
    ledger = Ledger().after(step(1)).after(step(2)).after(step(1))
    assert ledger.entries == ((step(1), 1), (step(2), 1), (step(1), 1))
    releases = step().releases
    ledger = Ledger().after(Step(Poisson(0.1), releases)).after(Step(Shuffled(10), releases))
    assert len(ledger.entries) == 2


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0]), st.integers(1, 9)), max_size=8))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_no_step_is_lost_or_made_up(made):
    ledger = Ledger()
    for sigma, times in made:
        ledger = ledger.after(step(sigma), times)
    unrolled = [entry for entry, times in ledger.entries for _ in range(times)]
    assert unrolled == [step(sigma) for sigma, times in made for _ in range(times)]
    assert ledger.steps == sum(times for _, times in made)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 6, 9])
def test_the_first_steps_of_a_ledger_are_those_and_no_more(n):
    ledger = Ledger().after(step(1.0), 3).after(step(2.0), 2).after(step(1.0))
    unrolled = [entry for entry, times in ledger.entries for _ in range(times)]
    expected = Ledger()
    for one in unrolled[:n]:
        expected = expected.after(one)
    assert ledger.first(n) == expected


def test_a_ledger_cannot_be_rewritten():
    ledger = Ledger().after(step())
    with pytest.raises(dataclasses.FrozenInstanceError):
        ledger.entries = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        ledger.entries[0][0].releases[0].mechanism.noise_multiplier = 5.0


@pytest.mark.parametrize("sigma", [0, -1, float("nan"), True, "1"])
def test_a_gaussian_needs_a_positive_multiplier(sigma):
    with pytest.raises(UserError, match="noise_multiplier must be a positive number"):
        GaussianMechanism(sigma)


@pytest.mark.parametrize("failure", [-1e-6, 1.5, float("nan")])
def test_a_failure_is_a_probability(failure):
    """A negative one would be subtracted from delta."""
    with pytest.raises(UserError, match="the probability of a failure must be a number from 0"):
        GaussianMechanism(1.0, failure=failure)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(UserError, match="the sampling rate must be a number above 0 and up to 1"):
        Poisson(rate)


@pytest.mark.parametrize("times", [-10, 0, 1.5])
def test_a_step_is_taken_once_or_more(times):
    """Otherwise an epsilon could be 0, or fall with what is added."""
    with pytest.raises(UserError, match="the times of a step must be a whole number of at least 1"):
        Ledger().after(step(), times)
