import math
import statistics
import sys

import pytest

from dpbench.comparison.search.samplers import SAMPLERS, STARTUP, check_installed, random, tpe
from dpbench.runs.config.space import Choices, Interval, Space
from dpbench.system.errors import UserError
from tests.omissions import extra

SPACE = Space(
    (
        Interval("lr", 1e-4, 1.0, frozenset({"log"})),
        Choices("method", ("a", "b")),
        Interval("width", 1, 64, frozenset({"log"})),
    )
)


def score(configuration):
    """Best at lr = 0.01 and method b."""
    lr, method, _ = configuration
    return -((math.log10(float(lr)) + 2) ** 2) - (method == "a")


def went(sampler, count, draw=0, space=SPACE, scored=score):
    """The history of a whole search."""
    history = {}
    while batch := sampler(space, count, draw, history):
        history |= {one: None if scored(one) is None else (scored(one), 0.0) for one in batch}
    return history


@pytest.fixture(params=SAMPLERS)
def sampler(request):
    if request.param == "tpe":
        pytest.importorskip("optuna", reason=extra("search"))
    return SAMPLERS[request.param]


def test_a_draw_leads_to_the_same_different_trials_though_it_was_interrupted(sampler):
    assert len(went(sampler, 14)) == 14
    assert len(went(sampler, 3)) == 3
    assert list(went(sampler, 14, draw=4)) == list(went(sampler, 14, draw=4))
    assert list(went(sampler, 14, draw=4)) != list(went(sampler, 14, draw=5))
    whole = went(sampler, 14)
    assert sampler(SPACE, 14, 0, dict(list(whole.items())[:12]))[0] == list(whole)[12]


def test_a_space_is_gone_through_and_failed_trials_stop_nothing(sampler):
    small = Space((Choices("method", ("a", "b", "c", "d")), Interval("width", 1, 4)))
    assert len(went(sampler, 16, space=small, scored=lambda one: float(one[1]))) == 16
    assert len(went(sampler, 99, space=small, scored=lambda one: float(one[1]))) == 16
    assert len(went(sampler, 13, scored=lambda _: None)) == 13
    assert len(went(sampler, 13, scored=lambda one: None if one[1] == "a" else 1.0)) == 13


def test_both_samplers_begin_alike():
    assert tpe(SPACE, 99, 3, {}) == random(SPACE, 99, 3, {})[:STARTUP]


@pytest.mark.slow
def test_the_tree_of_parzen_estimators_learns_from_the_scores():
    pytest.importorskip("optuna", reason=extra("search"))
    learnt, blind = (
        statistics.fmean(
            score(one) for draw in range(3) for one in list(went(sampler, 40, draw))[-15:]
        )
        for sampler in (tpe, random)
    )
    assert learnt > 0.7 * blind


def test_a_package_that_is_missing_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    check_installed("random")
    with pytest.raises(UserError, match=r"pip install 'dpbench-suite\[search\]'"):
        check_installed("tpe")
