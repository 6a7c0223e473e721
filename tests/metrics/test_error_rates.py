"""How often verdicts err, over tables drawn from known truths: the rates in docs/verdicts.md."""

import re
from collections import Counter

import numpy as np
import pytest

from dpbench.metrics.metric import Margin
from dpbench.metrics.paired_t import judge, paired_test
from dpbench.system.paths import conf_folder
from dpbench.tables.claims.claim import Claim
from dpbench.tables.claims.comparisons import Comparison, judged_claim
from dpbench.tables.claims.quantities import Quantity
from dpbench.tables.columns import Column

TABLES, COMPARISONS = 2000, 12
MARGIN = 0.5
ACCURACY = Quantity("acc", (Column("acc", "test/accuracy", 100, 1, "higher", "acc", Margin(0.5)),))
CLAIM = Claim("it", "So.", "page 1", "better", ("ours",), ("theirs",), ("acc",))

TRUTHS = {"0": 0.0, "half a margin": 0.5, "-half a margin": -0.5, "two margins": 2.0}
"""The true difference in every comparison, in margins."""


def drawn(truth, seeds, tables=TABLES):
    """Differences [table, comparison, seed] in points, with a standard deviation of one margin."""
    generator = np.random.default_rng(seeds)
    return MARGIN * generator.normal(truth, 1, (tables, COMPARISONS, seeds))


def pairs_of(differences):
    """The share of tables with any better, and any worse, and of comparisons that are equivalent
    and undecided."""
    verdicts = [judge([paired_test(row, MARGIN) for row in table]) for table in differences]
    cells = Counter(verdict for table in verdicts for verdict in table)
    return {
        **{name: np.mean([name in table for table in verdicts]) for name in ("better", "worse")},
        **{name: cells[name] / differences[..., 0].size for name in ("equivalent", "undecided")},
    }


def claims_of(differences):
    """The share of tables in which a claim of all comparisons has each verdict."""
    seeds = tuple(range(differences.shape[-1]))
    counts = Counter(
        judged_claim(
            CLAIM,
            [
                Comparison(str(n), "ours", "theirs", ACCURACY, seeds, (*row,), None, 1, 0.0, MARGIN)
                for n, row in enumerate(table)
            ],
        ).verdict
        for table in differences
    )
    return {verdict: count / len(differences) for verdict, count in counts.items()}


def printed():
    """The rows of the tables in docs/verdicts.md, by their first two cells."""
    text = (conf_folder().parent / "docs" / "verdicts.md").read_text()
    return {
        (truth, int(seeds)): re.findall(r"[\d.]+%", rest)
        for truth, seeds, rest in re.findall(r"^\| ([^|]+) \| (5|20) \|(.*)$", text, re.MULTILINE)
    }


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 20])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_page_states_the_rates(truth, seeds):
    differences = drawn(TRUTHS[truth], seeds)
    pairs, claims = pairs_of(differences), claims_of(differences)
    rates = [
        *(pairs[name] for name in ("better", "worse", "equivalent", "undecided")),
        *(claims.get(name, 0) for name in ("holds", "holds on average", "does not hold")),
    ]
    assert printed()[truth, seeds] == [f"{100 * rate:.1f}%" for rate in rates]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_equal_methods_are_told_apart_in_at_most_one_table_of_twenty(seeds):
    rates = pairs_of(drawn(0, seeds, tables=1000))
    assert rates["better"] + rates["worse"] <= 0.05 + 3 * np.sqrt(0.05 / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
@pytest.mark.parametrize(("examples", "accuracy"), [(36, 0.7), (36, 0.95), (360, 0.87)])
def test_a_small_test_set_tells_equal_methods_apart_no_more_often(examples, accuracy, seeds):
    """Its accuracies have few values, so that all differences are often equal by chance."""
    generator = np.random.default_rng(seeds)
    right = generator.binomial(examples, accuracy, (2, 1000, COMPARISONS, seeds))
    rates = pairs_of(100 / examples * (right[0] - right[1]))
    assert rates["better"] + rates["worse"] <= 0.05 + 3 * np.sqrt(0.05 / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 20])
@pytest.mark.parametrize("side", [-1, 1])
def test_methods_that_differ_by_the_margin_are_equivalent_in_at_most_one_table_of_twenty(
    seeds, side
):
    differences = drawn(side, seeds, tables=1000)
    verdicts = [judge([paired_test(row, MARGIN) for row in table]) for table in differences]
    rate = np.mean(["equivalent" in table for table in verdicts])
    assert rate <= 0.05 + 3 * np.sqrt(0.05 / 1000)


@pytest.mark.slow
def test_a_claim_without_effect_holds_in_at_most_one_table_of_twenty():
    for seeds in (3, 5, 20):
        claims = claims_of(drawn(0, seeds, tables=1000))
        false = claims.get("holds", 0) + claims.get("holds on average", 0)
        assert false <= 0.025 + 3 * np.sqrt(0.025 / 1000)


@pytest.mark.slow
def test_a_claim_of_two_margins_never_fails_for_one_noisy_cell():
    """By the rule "one cell fails, so it fails" it would in every fourth table."""
    for seeds in (5, 20):
        claims = claims_of(drawn(2, seeds, tables=1000))
        assert claims.get("does not hold", 0) == 0
        assert claims.get("holds", 0) + claims.get("holds on average", 0) > 0.95
