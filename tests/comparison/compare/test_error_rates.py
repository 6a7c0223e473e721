"""How often verdicts err, over comparisons drawn from known truths: results/verdict_rates.md."""

import re

import numpy as np
import pytest

from dpbench.comparison.compare.verdict import judge
from dpbench.learning.metrics.paired_t import paired_test
from dpbench.system.paths import conf_folder
from tests.comparison.compare.rates import CLAIMS, PAIRS, claims_of, coverage, drawn, pairs_of

PAGE = conf_folder().parent / "results" / "verdict_rates.md"
NAMES = {"-½": -0.5, "0": 0.0, "½": 0.5, "2": 2.0}
FEW = 0.05 + 3 * np.sqrt(0.05 / 1000)
"""The share of 1,000 repetitions that one in twenty may reach by chance."""


def printed(columns):
    """The rates of a table of the page, by the cells before them."""
    lines = re.findall(r"^\| (\d+) \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    rows = [[first, *(cell.strip() for cell in rest.split("|"))] for first, rest in lines]
    return {(*row[:-columns],): row[-columns:] for row in rows if len(row) == columns + columns - 1}


def percents(rates, words):
    return [f"{100 * rates[word]:.1f}%" for word in words]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("comparisons", [1, 12])
@pytest.mark.parametrize("seeds", [5, 20])
@pytest.mark.parametrize("gap", NAMES)
def test_the_page_states_the_rates(gap, seeds, comparisons):
    differences = drawn(NAMES[gap], comparisons, seeds, 1000)
    about = (str(comparisons), gap, str(seeds))
    pairs, claims = printed(len(PAIRS)), printed(len(CLAIMS))
    assert pairs[about] == percents(pairs_of(differences), PAIRS)
    edge = comparisons // 2
    assert claims[(*about, str(edge))] == percents(claims_of(differences, edge), CLAIMS)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_equal_methods_are_told_apart_in_at_most_one_page_of_twenty(seeds):
    rates = pairs_of(drawn(0, 12, seeds, 1000))
    assert rates["better"] + rates["worse"] <= FEW


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
@pytest.mark.parametrize(("examples", "accuracy"), [(36, 0.7), (36, 0.95), (360, 0.87)])
def test_a_small_test_set_tells_equal_methods_apart_no_more_often(examples, accuracy, seeds):
    """Its accuracies have few values, so that all differences are often equal by chance."""
    right = np.random.default_rng(seeds).binomial(examples, accuracy, (2, 1000, 12, seeds))
    rates = pairs_of(200 / examples * (right[0] - right[1]))
    assert rates["better"] + rates["worse"] <= FEW


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 20])
@pytest.mark.parametrize("side", [-1, 1])
def test_methods_that_differ_by_the_margin_are_equivalent_in_one_page_of_twenty(seeds, side):
    verdicts = [judge([paired_test(c, 1) for c in rep]) for rep in drawn(side, 12, seeds, 1000)]
    assert np.mean([any(j.verdict == "equivalent" for j in found) for found in verdicts]) <= FEW


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("at_edge", [0, 6])
@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_a_claim_without_effect_holds_as_seldom_as_it_fails(seeds, at_edge):
    """The words are symmetric: without an effect neither is given in more than 2.5%."""
    rates = claims_of(drawn(0, 12, seeds, 1000), at_edge)
    few = 0.025 + 3 * np.sqrt(0.025 / 1000)
    assert rates["holds"] + rates["holds within a margin"] <= few
    assert rates["fails"] <= few


@pytest.mark.slow
def test_half_a_margin_of_gain_is_no_failure_and_half_a_margin_of_loss_no_gain():
    for seeds in (5, 20):
        gains, losses = (claims_of(drawn(gap, 1, seeds, 1000)) for gap in (0.5, -0.5))
        assert gains["fails"] <= FEW
        assert losses["holds"] + losses["holds within a margin"] <= FEW
        assert gains["undecided"] == pytest.approx(losses["undecided"], abs=0.1)


@pytest.mark.slow
def test_a_claim_of_two_margins_never_fails_for_one_noisy_cell():
    """By the rule "one cell fails, so it fails" it would in every fourth table."""
    for seeds in (5, 20):
        rates = claims_of(drawn(2, 12, seeds, 1000))
        assert rates["fails"] == 0
        assert rates["holds"] > 0.95


@pytest.mark.slow
def test_intervals_over_searches_cover_search_and_seed_and_those_over_seeds_do_not():
    rates = [coverage(5, 4, 1.0, 300, by_search=by)[0] for by in (True, False)]
    assert rates[0] > 0.95 - 3 * np.sqrt(0.05 * 0.95 / 300)
    assert rates[1] < 0.85
    for about, (rate, _, by_seed, _) in printed(4).items():
        if about[0] in "35":
            assert float(rate.rstrip("%")) > 100 * (0.95 - 3 * np.sqrt(0.05 * 0.95 / 1000))
            assert float(by_seed.rstrip("%")) < 95 or about[2] == "0"
