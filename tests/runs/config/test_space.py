import math
from collections import Counter

import pytest
from scipy import stats

from dpbench.runs.config.space import Choices, Interval, Space, override_texts
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator

LOG = frozenset({"log"})
LR = Interval("lr", 1e-4, 1.0, LOG)
BOUND = Interval("bound", -2.0, 3.0)
WIDTH = Interval("width", 1, 4)
METHOD = Choices("method", ("sgd", "dpsgd"))
SPACE = Space((LR, METHOD, BOUND))


def sources(count):
    return [numpy_generator(number, "test") for number in range(count)]


def column(space, count, key, draw=0):
    keys = [one.key for one in space.ranges]
    return [values[keys.index(key)] for values in space.random(count, draw)]


def test_intervals_are_uniform_or_so_in_their_logarithm_and_written_as_overrides():
    values = [float(BOUND.draw(source)) for source in sources(2000)]
    assert stats.kstest(values, stats.uniform(-2, 5).cdf).pvalue > 0.01
    # Which half or twice the interval would not pass.
    assert stats.kstest(values, stats.uniform(-2, 4.5).cdf).pvalue < 1e-6
    values = [math.log10(float(LR.draw(source))) for source in sources(2000)]
    assert stats.kstest(values, stats.uniform(-4, 4).cdf).pvalue > 0.01
    values = Space((METHOD, WIDTH)).values(("sgd", "3"))
    assert override_texts(values) == ["method=sgd", "width=3"]


def test_whole_numbers_reach_both_bounds_and_in_logarithm_favour_the_small_ones():
    drawn = Counter(WIDTH.draw(source) for source in sources(2000))
    assert set(drawn) == {"1", "2", "3", "4"}
    assert stats.chisquare([*drawn.values()]).pvalue > 0.01
    one = Interval("width", 1, 64, LOG)
    drawn = [int(one.draw(source)) for source in sources(2000)]
    assert (min(drawn), max(drawn)) == (1, 64)
    assert 0.4 < sum(value <= 8 for value in drawn) / 2000 < 0.6


def test_a_drawn_number_has_few_digits_and_never_leaves_its_bounds():
    for narrow in (Interval("x", 1.0, 1.0009), Interval("x", 1.0, 1.0009, LOG)):
        drawn = {narrow.draw(source) for source in sources(50)}
        assert len(drawn) > 40
        assert all(1 <= float(value) <= 1.0009 and len(value) <= 9 for value in drawn)
    assert all(len(v.lstrip("-0.").replace(".", "")) <= 4 for v in column(SPACE, 99, "bound"))


def test_more_trials_begin_with_the_same_ones_whatever_other_ranges():
    space = Space((LR, METHOD))
    assert space.random(30, 5)[:7] == space.random(7, 5)
    assert space.random(7, 5) != space.random(7, 6)
    assert column(SPACE, 9, "lr") == column(Space((LR,)), 9, "lr")


def test_no_configuration_is_drawn_twice_until_a_space_comes_to_an_end():
    space = Space((METHOD, WIDTH))
    assert space.size == 8
    drawn = space.random(100, 0)
    assert sorted(drawn) == sorted((m, w) for m in METHOD.values for w in "1234")
    assert len(set(space.random(6, 0))) == 6
    assert Space((METHOD, LR)).size == math.inf
    tight = Space((Interval("x", 0.5, math.nextafter(math.nextafter(0.5, 1), 1)),))
    assert 2 <= len(tight.random(50, 0)) <= 3


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Interval("lr", 1.0, 0.1), r"lr: the first bound of interval\(1,0.1\) must be"),
        (lambda: Interval("lr", 1.0, 1.0), "must be below the second"),
        (lambda: Interval("lr", 0.0, 1.0, LOG), r"tag\(log,interval\(0,1\)\) needs bounds"),
        (lambda: Interval("lr", -1.0, 1.0, LOG), "needs bounds above 0"),
        (lambda: Interval("lr", 0.0, math.inf), "must be a number, got inf"),
        (lambda: Interval("lr", math.nan, 1.0), "must be a number, got nan"),
        (lambda: Interval("lr", 1.0, 2.0, frozenset({"lg"})), "lg is unknown: did you mean log"),
        (lambda: Choices("lr", ("1", "2"), LOG), "lr: only an interval takes a tag"),
        (lambda: Choices("lr", ()), "lr has a range without values"),
    ],
)  # fmt: skip
def test_a_range_that_is_none_is_refused(make, sentence):
    with pytest.raises(UserError, match=sentence):
        make()
