"""SlaClip: its slots and its update by hand, and that gradient and slack are one vector."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.step.methods.slaclip import Slack, slaclip
from dpbench.system.errors import UserError


def clip(bound=2.0, slots=4, **changes):
    usual = {"learning_rate": 0.5, "beta": 0.5, "least": 0.1, "most": 50.0}
    return Slack(bound, slots, **{**usual, **changes})


def slots_of(made, *norms):
    """What each gradient adds to the slots, in units of R/sqrt(K)."""
    groups = torch.zeros(1, dtype=torch.long)
    rows = [made.counts(torch.tensor([norm]), groups) for norm in norms]
    return (torch.stack(rows) * made.slots**0.5).tolist()


# Two gradients of norm 0.5 and two of norm 1 with R = 2 and K = 4, as the authors' test has them.
def test_slots_are_filled_one_after_the_other():
    assert slots_of(clip(), 0.5, 1.0, 0.25, 2.0, 3.0, 0.0) == [
        [1, 1, 1, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0.5],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [1, 1, 1, 1],
    ]
    together = clip().counts(torch.tensor([0.5, 0.5, 1.0, 1.0]), torch.zeros(4).long())
    assert (together * 2).tolist() == [4, 4, 2, 0]


@pytest.mark.slow
@given(st.lists(st.floats(0, 10), min_size=1, max_size=5), st.floats(0.2, 5), st.integers(1, 40))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_an_example_s_clipped_gradient_and_slack_have_norm_one_together(norms, bound, slots):
    made = clip(bound, slots)
    for norm in norms:
        one = torch.tensor([norm], dtype=torch.float64)
        groups = torch.zeros(1, dtype=torch.long)
        shortened = float(made.factors(one, groups) * one) / float(made.sensitivity.bound)
        assert math.hypot(shortened, float(made.counts(one, groups).norm())) <= 1 + 1e-9


def test_an_example_moves_sum_and_slots_by_at_most_the_bound_together(step_of, batch_of):
    step, batch = step_of(slaclip(0.5, 8, 0.5, 0.5, 0.1, 50.0)), batch_of(7)
    whole = step.clipped_sum(step.engine(batch), batch)
    for i in range(7):
        rest = batch.each(lambda t, i=i: torch.cat([t[:i], t[i + 1 :]]))
        fewer = step.clipped_sum(step.engine(rest), rest)
        moved = torch.cat(
            [(whole.total - fewer.total) / 0.5, whole.exact_counts - fewer.exact_counts]
        )
        assert moved.norm() <= 1 + 1e-9


# The authors' numbers: R = 2, slots filled by 0.2 and 0.4, eta = beta = 1/2.
def test_the_bound_moves_as_in_the_authors_code():
    goal = max(0.0, min(1.0, 1.0 - 0.5 * (1.0 - 0.4 / 2.0)))
    counts = torch.tensor([0.2, 0.4]) * 8 / 2**0.5
    new = clip(slots=2).updated(counts, 8.0)
    assert float(new.sensitivity.bound) == pytest.approx(2 * math.exp(0.5 * (goal - 0.2)), rel=1e-5)


@pytest.mark.parametrize(("answer", "expected"), [(-1e30, 50.0), (1e30, 0.1)])
def test_no_answer_moves_the_bound_out_of_its_range(answer, expected):
    moved = clip().updated(torch.tensor([answer, 0.0, 0.0, 0.0]), 8.0)
    assert float(moved.sensitivity.bound) == pytest.approx(expected)


def test_a_bound_rises_where_all_is_clipped_and_gradients_not_finite_fill_no_slot():
    for norm, rises in ((30.0, True), (0.7, False)):
        made, norms = clip(beta=0.9), torch.full((8,), norm)
        moved = made.updated(made.counts(norms, torch.zeros(8).long()), 8.0)
        assert (float(moved.sensitivity.bound) > 2) == rises
    assert slots_of(clip(), math.nan, math.inf) == [[0] * 4] * 2
    assert clip().query.multiplier(1.3) == 1.3  # as the gradients have


@pytest.mark.parametrize(
    "changes", [{"slots": 0}, {"beta": 1.5}, {"learning_rate": 0}, {"least": 3.0}, {"most": 1.0}]
)
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(UserError, match=r"method\."):
        clip(**changes)
