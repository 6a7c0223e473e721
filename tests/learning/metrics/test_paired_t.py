import math

import numpy as np
import pytest
from scipy import stats

from dpbench.comparison.compare.verdict import judge
from dpbench.learning.metrics.paired_t import holm, paired_test

GAINS = (0.4, 1.1, -0.2, 0.9, 0.7)


def verdicts(*tests):
    """The verdicts on comparisons that are read together."""
    return [judged.verdict for judged in judge(tests)]


def test_the_p_of_a_difference_is_that_of_the_paired_t_test():
    ours, theirs = np.array([80.1, 79.2, 81.0]), np.array([79.0, 79.1, 79.7])
    expected = stats.ttest_rel(ours, theirs)
    found = paired_test(ours - theirs, margin=0.5)
    assert found.p_difference == pytest.approx(expected.pvalue)
    assert found.interval() == pytest.approx((*expected.confidence_interval(0.95),))


@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.3])
def test_the_p_of_equivalence_is_the_larger_of_two_one_sided_t_tests(shift):
    gains = np.array(GAINS) + shift
    lower = stats.ttest_1samp(gains, -1.5, alternative="greater").pvalue
    upper = stats.ttest_1samp(gains, 1.5, alternative="less").pvalue
    assert paired_test(gains, 1.5).p_equivalence == pytest.approx(max(lower, upper))


def test_equivalence_is_a_90_percent_interval_and_rounding_no_difference():
    low, high = paired_test(GAINS, 1).interval(0.9)
    assert 0 < low < high
    assert verdicts(paired_test(GAINS, high + 1e-9)) == ["equivalent"]
    assert verdicts(paired_test(GAINS, high - 1e-9)) != ["equivalent"]
    gains = [0.1 + 0.2 - 0.3, 0.0, 0.0]
    assert gains[0] != 0
    assert paired_test(gains, 0.5).p_difference == 1


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((2.0, 2.2, 1.9), "better"),
        ((-2.0, -2.2, -1.9), "worse"),
        ((0.1, -0.1, 0.05), "equivalent"),
        pytest.param((0.2, 0.21, 0.19), "equivalent", id="shown, but smaller than the margin"),
        ((3.0, -1.0, 0.5), "undecided"),
        pytest.param((2.0,), "undecided", id="one seed"),
        pytest.param((2.0, 2.1, math.nan), "undecided", id="a diverged run"),
        pytest.param((2.0,) * 5, "undecided", id="without spread, five seeds"),
        pytest.param((2.0,) * 6, "better", id="without spread, six"),
        pytest.param((0.0,) * 4, "undecided", id="equal, four seeds"),
        pytest.param((0.0,) * 5, "equivalent", id="equal, five"),
    ],
)
def test_the_four_verdicts(gains, verdict):
    assert verdicts(paired_test(gains, 1.0)) == [verdict]


def test_equal_differences_are_judged_by_the_sign_test():
    for n in (2, 5, 6):
        found = paired_test([2.0] * n, 3.0)
        assert found.p_difference == pytest.approx(stats.binomtest(n, n).pvalue)
        assert found.p_equivalence == pytest.approx(
            stats.binomtest(n, n, alternative="greater").pvalue
        )
        assert found.interval() == ((2, 2) if n == 6 else (-math.inf, math.inf))
    assert paired_test([2.0] * 3, 0.1).seeds_needed(0.5) == 6


def test_holm_s_correction_of_verdicts_that_are_read_together():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []
    # A p that is low enough for one comparison, and not for the only such one of five.
    alone = paired_test(2 + 1.5 * np.array([-1, -0.5, 0, 0.5, 1]), 0.1)
    assert 0.01 < alone.p_difference < 0.05
    assert verdicts(alone) == ["better"]
    assert verdicts(alone, *[paired_test((1.0, -1.0), 0.1)] * 4)[0] == "undecided"


def test_a_sign_turns_better_into_worse_and_nothing_else():
    found = paired_test(GAINS, 0.1)
    turned = found.scaled(-1)
    assert (turned.mean, turned.margin) == (-found.mean, found.margin)
    assert turned.p_difference == found.p_difference
    assert turned.p_equivalence == found.p_equivalence


def test_power_is_how_often_simulated_seeds_decide():
    """A true difference of half a deviation, against margins below and above it."""
    generator = np.random.default_rng(0)
    for margin, n in ((0.1, 20), (0.5, 40), (1.5, 20)):
        planned = paired_test([0.5 - math.sqrt(0.5), 0.5 + math.sqrt(0.5)], margin)
        assert (planned.mean, planned.deviation) == (pytest.approx(0.5), pytest.approx(1))
        draws = generator.normal(0.5, 1, (4000, n))
        tests = [paired_test(row, margin) for row in draws]
        different = np.mean([test.p_difference <= 0.05 for test in tests])
        equivalent = np.mean([test.p_equivalence <= 0.05 for test in tests])
        assert planned.power(n) == pytest.approx(max(different, equivalent), abs=0.03)


def test_the_seeds_needed_have_their_power_and_none_decide_on_the_margin():
    found = paired_test(GAINS, 0.1)
    for power in (0.5, 0.9):
        n = found.seeds_needed(power)
        assert found.power(n) >= power > found.power(n - 1)
    assert found.seeds_needed(0.9) > found.seeds_needed(0.5)
    assert found.seeds_needed(0.9, level=0.001) > found.seeds_needed(0.9)
    assert paired_test((1.0, -1.0), 0.0).seeds_needed(0.5) is None
    assert paired_test((1.0,), 0.5).seeds_needed(0.5) is None
    found = paired_test(GAINS, 0.0)
    at = paired_test(GAINS, 0.0).scaled(found.smallest_difference() / found.mean)
    same_spread = at.__class__(at.mean, found.deviation, found.n, 0.0)
    assert same_spread.power(found.n) == pytest.approx(0.8, abs=0.03)
