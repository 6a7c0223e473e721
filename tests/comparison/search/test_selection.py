import math

import pytest

from dpbench.comparison.search.report import EPSILONS, shown_epsilon
from dpbench.comparison.search.selection import (
    ACCURACY,
    LOSS,
    RULES,
    WORST_GROUP,
    Trial,
    check_any,
    ranked,
)
from dpbench.runs.records.epsilon import NO_PROOF, NOT_COMPUTED, NOT_PRIVATE
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError


def record(accuracy, loss=1.0, status="complete", rdp=2.0, test=0.0):
    metrics = {ACCURACY: accuracy, LOSS: loss, "test/accuracy": test}
    return Record({}, metrics, {"rdp": rdp}, {}, status)


def trial(number, *outcomes):
    return Trial(number, {"lr": str(number)}, dict(zip("012", outcomes, strict=False)))


def order(rule, *trials):
    return [one.number for one in ranked(trials, RULES[rule])]


def test_the_best_mean_over_the_seeds_wins_and_the_largest_epsilon_counts():
    lucky, steady = trial(1, record(0.9), record(0.1)), trial(2, record(0.6), record(0.6))
    assert order("best_validation", lucky, steady) == [2, 1]
    assert steady.mean(ACCURACY) == 0.6
    assert lucky.spread(ACCURACY) == pytest.approx(0.8 / math.sqrt(2))
    assert math.isnan(trial(1, record(0.5)).spread(ACCURACY))
    assert trial(1, record(0.5, rdp=1.0), record(0.5, rdp=3.0)).epsilon("rdp") == 3.0
    assert trial(1, record(0.5, rdp=1.0), record(0.5, rdp=None)).epsilon("rdp") is None
    assert trial(1, "no memory").epsilon("rdp") is None


def test_each_rule_reads_its_own_metric_and_none_of_the_test_set():
    sure, right = trial(1, record(0.5, loss=0.1)), trial(2, record(0.6, loss=0.2))
    assert order("best_validation", sure, right) == [2, 1]
    assert order("lowest_validation_loss", sure, right) == [1, 2]
    trials = trial(1, record(0.6, test=0.1)), trial(2, record(0.5, test=0.9))
    for rule in RULES:
        assert order(rule, *trials) == [1, 2]


def test_a_tie_goes_to_the_other_metric_and_no_run_is_refused_with_the_reason():
    same = [trial(n, record(0.5, loss=loss)) for n, loss in ((1, 0.3), (2, 0.2), (3, 0.2))]
    assert order("best_validation", *same) == [2, 3, 1]
    even = [trial(n, record(accuracy, loss=0.2)) for n, accuracy in ((1, 0.3), (2, 0.4), (3, 0.4))]
    assert order("lowest_validation_loss", *even) == [2, 3, 1]
    with pytest.raises(UserError, match="none of the 2 trials could be run: too small"):
        check_any([trial(1, "too small"), trial(2, "too large")])
    check_any([trial(1, "too small"), trial(2, record(math.nan, status="diverged"))])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("no memory", "no memory"),
        (record(0.9, status="diverged"), "diverged"),
        (record(math.nan), "diverged"),
        (record(0.9, loss=math.inf), "diverged"),
    ],
)
def test_a_trial_with_a_seed_that_failed_cannot_be_chosen(bad, why):
    broken = trial(1, record(0.9), bad)
    assert order("best_validation", broken, trial(2, record(0.1), record(0.1))) == [2]
    assert broken.failures == {"1": why}
    assert math.isnan(broken.mean(ACCURACY))
    assert math.isnan(broken.spread(ACCURACY))


def test_the_worst_group_is_that_of_each_seed():
    groups = [{"a": 0.5, "b": 0.9}, {"a": 0.8, "b": 0.7, "empty": math.nan}]
    runs = []
    for by_group in groups:
        metrics = {f"validation/accuracy/{group}": value for group, value in by_group.items()}
        runs.append(Record({}, {ACCURACY: 0.8, LOSS: 1.0, **metrics}, {}, {}, "complete"))
    assert trial(1, *runs).mean(WORST_GROUP) == pytest.approx(0.6)
    assert math.isnan(trial(1, record(0.5)).mean(WORST_GROUP))


@pytest.mark.parametrize(
    ("privacy", "shown"),
    [
        ({"rdp": 2.0, "pld": 1.9, "guarantee": "proven"}, ["2.00", "1.90"]),
        ({"rdp": None, "pld": 1.5, "guarantee": "proven"}, [NOT_COMPUTED, "1.50"]),
        ({"rdp": None, "pld": None, "guarantee": "none"}, [NO_PROOF] * 2),
        ({"rdp": math.inf, "pld": math.inf, "guarantee": "none"}, [NOT_PRIVATE] * 2),
    ],
)
def test_epsilons_are_shown_as_on_other_pages(privacy, shown):
    one = trial(1, Record({}, {ACCURACY: 0.5, LOSS: 1.0}, privacy, {}, "complete"))
    assert [shown_epsilon(one, accountant) for accountant in EPSILONS] == shown
