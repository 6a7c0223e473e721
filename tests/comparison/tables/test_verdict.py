import math
import statistics
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dpbench.comparison.tables.edition import STANDARD_DEVIATION
from dpbench.comparison.tables.published import Published
from dpbench.comparison.tables.verdict import (
    MARGINS,
    Distance,
    distance,
    published_standard_error,
    reproduces,
    rule,
    scores_line,
)
from dpbench.learning.metrics.metric import Margin

VALUES = (79.0, 80.0, 80.5, 80.9)


@pytest.fixture
def accuracy(toy):
    """The accuracy of a group, with a margin of a point: a mean may be two points away."""
    return toy.columns[0]


@pytest.fixture
def verdict(toy, accuracy):
    """The verdict on runs, beside a mean over four runs in print."""
    return lambda values, printed, of=toy: reproduces(of, accuracy, values, printed)[0]


def shifted(by, spread=1.0):
    """Runs whose mean is 80 + by."""
    center = statistics.fmean(VALUES)
    return [80 + by + spread * (value - center) for value in VALUES]


def test_the_interval_is_that_of_welch_s_t_test(toy, accuracy):
    """By scipy, from the summary of both samples."""
    values, theirs = shifted(0.4), 0.3 * math.sqrt(toy.published_runs)
    found = distance(toy, accuracy, values, Published("80.0", "0.3"))
    ours, n = statistics.stdev(values), toy.published_runs
    p = stats.ttest_ind_from_stats(80.4, ours, 4, 80.0, theirs, n, equal_var=False).pvalue
    assert 2 * stats.norm.cdf(-abs(found.score)) == pytest.approx(p)
    assert found.value == pytest.approx(0.4)


def test_a_spread_that_was_not_printed_is_ours_with_our_degrees_of_freedom(toy, accuracy):
    values, printed = shifted(0.4), Published("80.0", None)
    found = distance(toy, accuracy, values, printed)
    error = statistics.stdev(values) * math.sqrt(1 / 4 + 1 / toy.published_runs)
    assert found.error == pytest.approx(error)
    p = 2 * stats.t.sf(0.4 / error, 3)
    assert 2 * stats.norm.cdf(-abs(found.score)) == pytest.approx(p)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_the_rates_of_wrong_verdicts_on_a_printed_number_are_as_stated(accuracy, runs, spread):
    """A true distance of just two margins is reproduced in 5% of cases and differs in 2.5%."""
    edition = SimpleNamespace(published_runs=runs, table=SimpleNamespace(spread=STANDARD_DEVIATION))
    generator, rounds, found = np.random.default_rng(runs), 4000, Counter()
    for ours, theirs in generator.normal(0, 0.3, (rounds, 2, runs)):
        printed = Published(str(theirs.mean()), str(theirs.std(ddof=1)) if spread else None)
        found[distance(edition, accuracy, ours + MARGINS, printed).verdict] += 1
    for verdict, rate in (("reproduced", 0.05), ("differs", 0.025)):
        assert found[verdict] / rounds <= rate + 3 * math.sqrt(rate / rounds)


def test_reproduced_if_the_90_percent_interval_is_within_two_margins_and_no_further():
    def at(value):
        return Distance(value, error=0.2, degrees=6, rounding=0.05, allowed=1.0).verdict

    inner = 1 - 0.05 - 0.2 * stats.t.ppf(0.95, 6)
    outer = 1 + 0.05 + 0.2 * stats.t.ppf(0.975, 6)
    for sign in (-1, 1):
        assert at(sign * (inner - 1e-9)) == "reproduced"
        assert at(sign * (inner + 1e-9)) == "undecided"
        assert at(sign * (outer - 1e-9)) == "undecided"
        assert at(sign * (outer + 1e-9)) == "differs"


def test_noisy_runs_decide_nothing_however_near_their_mean_is(verdict):
    printed = Published("80.0", "0.1")
    assert verdict(shifted(0, 0.2), printed) == "reproduced"
    assert verdict(shifted(0, 5), printed) == "undecided"
    assert verdict(shifted(0, 0.2), Published("80.0", "2.0")) == "undecided", "print is noisy"


def test_a_shown_difference_within_the_margins_does_not_matter(toy, accuracy, verdict):
    found = distance(toy, accuracy, shifted(1.2, 0.1), Published("80.0", "0.05"))
    assert found.score > 3
    assert found.verdict == "reproduced"
    assert verdict(shifted(2.6, 0.1), Published("80.0", "0.05")) == "differs"


def test_one_run_and_nothing_published_decide_nothing(verdict):
    assert verdict([80.0], Published("80.0", "0.4")) == "undecided"
    assert verdict([90.0], Published("80.0", "0.4")) == "undecided"
    assert verdict([80.0, 80.1], None) == "-"
    assert verdict([80.0, math.nan], Published("80.0", "0.1")) == "no number"


def test_runs_without_spread_beside_print_without_spread_leave_its_rounding(verdict):
    assert verdict([81.9] * 2, Published("80.0", None)) == "reproduced"
    assert verdict([81.96] * 2, Published("80.0", None)) == "undecided"
    assert verdict([82.06] * 2, Published("80.0", None)) == "differs"
    assert verdict([82.4] * 2, Published("80", None)) == "undecided"


def test_a_margin_may_be_a_share_of_the_printed_number(edition):
    other = edition(columns={"acc_a": {"metric": "test/accuracy/m", "margin": "2%"}})
    assert other.columns[0].margin == Margin(relative=0.02)
    found = distance(other, other.columns[0], shifted(0), Published("50.0", "0.1"))
    assert found.allowed == 2


def test_a_column_that_is_not_judged_says_so(toy, edition, plain):
    columns = {**plain["columns"]}
    columns["acc_a"] = {**columns["acc_a"], "judged": False}
    other = edition(columns=columns)
    assert reproduces(other, other.columns[0], VALUES, Published("80.0", "0.1")) == (
        "not judged",
        None,
    )
    assert '"not judged" that another column' in rule(other)
    assert "not judged" not in rule(toy)


def test_another_scale_is_never_reproduced(verdict, edition):
    other = edition(scale_label="2 of 20 epochs")
    assert verdict(shifted(0, 0.1), Published("80.0", "0.1"), other) == "other scale"
    assert "2 of 20 epochs" in rule(other)


def test_a_printed_standard_deviation_becomes_a_standard_error(edition, toy):
    deviation = edition(spread="standard deviation")
    printed = Published("80.0", "0.8")
    assert published_standard_error(deviation, printed) == 0.4
    assert published_standard_error(toy, printed) == 0.8
    assert "divided by sqrt(4)" in rule(deviation)


def test_the_rule_names_the_margin_of_every_column(toy):
    assert "with m = 2 margins of the column (acc_a, pi_ab 1)" in rule(toy)


def test_scores_count_what_is_beyond_two_standard_errors_beside_what_chance_gives():
    """Scores of -3, 0, 1 and 2.5, by normal errors."""
    found = [Distance(z, 1.0, math.inf, 0.05, 1.0) for z in (-3.0, 0.0, 1.0, 2.5)]
    p = stats.chi2.sf(9 + 0 + 1 + 6.25, 4)
    assert scores_line(found) == (
        "Distances to print in standard errors: 2 of 4 are beyond 2, of which chance alone would "
        f"give 0.2; the sum of their squares is 16 (p = {p:.3f} if all means were the same)."
    )
    assert scores_line([*found[:1], Distance(1.0, math.nan, 1, 0.05, 1.0)]) == ""


def test_scores_of_equal_means_are_standard_normal_whatever_the_number_of_runs(toy, accuracy):
    """Three runs of ours, four of the paper's: Student's t would be beyond 2 twice as often."""
    generator = np.random.default_rng(1)
    scores = []
    for _ in range(4000):
        theirs = generator.normal(80, 1, toy.published_runs)
        printed = Published(f"{theirs.mean():.4f}", f"{stats.sem(theirs):.4f}")
        scores.append(distance(toy, accuracy, generator.normal(80, 1, 3), printed).score)
    assert np.mean(np.abs(scores) > 2) == pytest.approx(2 * stats.norm.cdf(-2), abs=0.012)
