from dataclasses import replace

import pytest

from dpbench.comparison.compare.side import GIVEN, Tuning
from dpbench.comparison.compare.verdict import Doubts
from dpbench.comparison.tables.claims.comparisons import ClaimEvidence, judged_claim
from dpbench.comparison.tables.claims.grids import (
    RULE,
    RULE_OF_BY,
    chance_line,
    comparisons_grid,
    rules_of,
)
from dpbench.comparison.tables.claims.quantities import PrintedNumber, Quantity
from dpbench.comparison.tables.edition import TableColumn
from dpbench.comparison.tables.published import Published
from dpbench.comparison.tables.runs import Row
from dpbench.comparison.tables.table import _notes_on_trials, build_table
from dpbench.learning.metrics.metric import Margin
from dpbench.learning.metrics.paired_t import POWER
from dpbench.system.errors import UserError

PRINTED = {
    ("dpsgd", "acc_a"): Published("75.0", "0.3"),
    ("fair", "acc_a"): Published("79.0", "0.4"),
}
ABOUT = {"statement": "So.", "source": "page 1"}

LITTLE = 1e-8
"""Added to the second seed of a row, as two gaps that are quite equal decide nothing."""


@pytest.fixture
def judged(build, run, runs):
    """The one claim of a table, judged on accuracies of `fair`; those of dpsgd are 70 and 74."""

    def _judged(fair, claim=None, **changes):
        accuracies = fair.items() if isinstance(fair, dict) else enumerate(fair)
        more = [run("fair", seed, accuracy + LITTLE * seed) for seed, accuracy in accuracies]
        if claim:
            changes["claims"] = {"it": {**ABOUT, **claim}}
        free = [run("sgd", seed, 0.8 + 0.04 * seed + LITTLE * seed) for seed in (0, 1)]
        private = [one for one in runs if one["method"] != "sgd"]
        (found,) = build([*free, *private, *more], **changes).claims
        return found

    return _judged


def test_a_gap_is_paired_by_seed_however_much_the_seeds_differ(judged):
    """70 and 74 against 71 and 77, and a third seed that dpsgd does not have."""
    (found,) = judged({0: 0.71, 1: 0.77, 7: 0.1}, published=PRINTED).comparisons
    assert found.gaps == pytest.approx({0: 1.0, 1: 3.0})
    assert found.printed.value == pytest.approx(4.0)
    assert found.printed.error == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("fair", "verdict"),
    [
        ((0.75, 0.79), "holds"),
        ((0.65, 0.69), "fails"),
        ((0.71, 0.81), "undecided"),
        ((0.75,), "undecided"),
        pytest.param((0.70, 0.74), "no difference", id="equal"),
        pytest.param((0.7001, 0.7399), "no difference", id="shown to be within the margin"),
        pytest.param((0.70099, 0.74101), "holds within a margin", id="above 0, near the margin"),
        pytest.param((0.70499, 0.74501), "holds within a margin", id="above 0, and by less"),
        ((), "not run"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_its_gaps_at_every_scale(judged, fair, verdict):
    for scale in ("paper", "2 of 20 epochs"):
        assert judged(fair, scale_label=scale).verdict == verdict


def test_a_claim_is_judged_by_its_mean_effect_and_print_has_no_part_in_it(judged):
    """Gaps of -0.5 and +1.5 may be none, and may be more than the margin: print cannot decide."""
    for published in ({}, PRINTED):
        for scale in ("paper", "small"):
            found = judged((0.695, 0.755), published=published, scale_label=scale)
            assert found.verdict == "undecided"
    # By accuracy `fair` gains 5 points with both seeds, and so loses as much in cost.
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a", "pi_ab"]}
    found = judged((0.75, 0.79), claim)
    for comparison in found.comparisons:
        assert comparison.in_favour(comparison.gaps) == pytest.approx({0: 5, 1: 5})
    assert (found.ruling.effect.mean, found.verdict) == (pytest.approx(5), "holds")


def test_a_row_under_another_condition_is_found_by_its_full_name_in_runs_and_in_print():
    def row(condition, gain):
        values = [{"seed": seed, "acc": 0.5 + 0.1 * seed + gain} for seed in (0, 1)]
        return Row(condition, "fair", "corrected", values)

    printed = {(f"{x}, fair", "acc"): PrintedNumber(n, 0, 0) for x, n in (("x", 70), ("y", 73))}
    data = ClaimEvidence(["x", "y"], [row("x", 0), row("y", 0.02)], printed)
    accuracy = Quantity("acc", (TableColumn("acc", "acc", 100, 1, "higher", "acc", Margin(1)),))
    assert data.gaps("y", "fair", "x, fair", accuracy) == pytest.approx({0: 2, 1: 2})
    assert data.printed_gap("y", "fair", "x, fair", accuracy).value == 3
    assert data.gaps("y", "fair", "fair", accuracy) == {0: 0, 1: 0}, "under the same condition"
    assert data.gaps("y", "fair", "z, fair", accuracy) == {}
    assert data.printed_gap("y", "fair", "z, fair", accuracy) is None


def test_better_is_what_the_column_says_and_smaller_and_larger_are_what_they_say(judged):
    """Group f has 90% throughout, so the cost gap is what a run lost on group m."""
    for claim, verdict in [
        ({"better": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}, "holds"),
        ({"smaller": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}, "holds"),
        ({"larger": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}, "fails"),
    ]:
        assert judged((0.75, 0.79), claim).verdict == verdict


def test_a_claim_may_be_about_a_difference_or_a_mean_of_columns_or_a_metric(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["pi_ab - acc_a"]}
    found = judged((0.75, 0.79), claim)
    assert found.comparisons[0].gaps == pytest.approx({0: -10.0, 1: -10.0})
    assert found.verdict == "holds"
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["mean(acc_a, pi_ab)"]}
    found = judged((0.75, 0.79), claim)
    alone = [judged((0.75, 0.79), {**claim, "in": [c]}) for c in ("acc_a", "pi_ab")]
    first, second = (one.comparisons[0].gaps for one in alone)
    means = {seed: (first[seed] + second[seed]) / 2 for seed in first}
    assert found.comparisons[0].gaps == pytest.approx(means)
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["test/accuracy/m", "test/accuracy/f"]}
    found = judged((0.75, 0.79), claim).comparisons
    assert [c.gaps for c in found] == [pytest.approx({0: 5.0, 1: 5.0}), {0: 0.0, 1: 0.0}]
    assert [c.favour for c in found] == [1, 1]


def test_a_claim_may_ask_for_more_or_for_no_less_than_so_much(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a"]}
    five_more, one_less = (0.75, 0.79), (0.69, 0.73)
    assert judged(five_more, {**claim, "by": 4}).verdict == "holds"
    assert judged(five_more, {**claim, "by": 6}).verdict == "fails"
    assert judged(one_less, {**claim, "by": -2}).verdict == "holds"
    assert judged(one_less, {**claim, "by": -0.5}).verdict == "fails"


def test_no_seeds_are_promised_to_decide_a_gap_that_is_just_as_large_as_is_claimed(judged):
    """Seeds would soon show that it is within a margin of it, from which nothing follows."""
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a"]}
    nearly = (0.7201, 0.7599)  # two points more, and a hundredth more or less
    promised = {
        by: judged(nearly, {**claim, "by": by}).ruling.effect.seeds_needed(POWER) for by in (1, 2)
    }
    assert promised == {1: 2, 2: None}


def test_a_row_may_be_held_against_a_number_and_an_unknown_column_is_named(judged):
    claim = {"larger": ["fair"], "than": [50], "in": ["acc_a"]}
    assert judged((0.75, 0.79), claim).comparisons[0].gaps == pytest.approx({0: 25, 1: 29})
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_b"]}
    with pytest.raises(UserError, match="A claim is about acc_b: did you mean acc_a"):
        judged((0.75, 0.79), claim)


@pytest.fixture
def under_both(run, plain, edition):
    """The claims of a table by name, with fair that much above dpsgd under x and under y."""

    def _judged(gain_x, gain_y, at_edge=(), **claims):
        rows = [
            {**run(method, seed, accuracy + seed / 10), "condition": condition}
            for condition, gain in (("x", gain_x), ("y", gain_y))
            for seed in (0, 1)
            for method, accuracy in (
                ("sgd", 0.7 + LITTLE * seed),
                ("dpsgd", 0.5),
                ("fair", 0.5 + gain + LITTLE * seed),
            )
        ]
        claims = {k: {**plain["claims"]["fair"], **v} for k, v in {"both": {}, **claims}.items()}
        changes = {"claims": claims, "columns": {"acc_a": plain["columns"]["acc_a"]}}
        asked = edition(conditions=["x", "y"], at_edge=at_edge, **changes)
        table = build_table(asked, rows, {}, epsilon={}, notes=())
        return {one.claim.name: one for one in table.claims}

    return _judged


def test_a_claim_about_some_conditions_is_judged_under_those(under_both):
    found = under_both(0.1, -0.2, x={"under": {"under": ["x"]}}, neither={"under": {"under": []}})
    verdicts = [found[name].verdict for name in ("x", "both", "neither")]
    assert verdicts == ["holds", "fails on average", "not run"]


@pytest.mark.parametrize(
    ("x", "y", "cells", "verdict"),
    [
        (0.1, 0.1, ["holds", "holds"], "holds"),
        (0.1, -0.02, ["holds", "fails"], "holds on average"),
        (0.02, -0.1, ["holds", "fails"], "fails on average"),
        (0.1, 0, ["holds", "no difference"], "holds"),
        (0.03, -0.031, ["holds", "fails"], "no difference on average"),
        (0, 0, ["no difference"] * 2, "no difference"),
        (0.005, 0.005, ["holds within a margin"] * 2, "holds within a margin"),
    ],
)
def test_what_points_both_ways_is_so_on_average(under_both, x, y, cells, verdict):
    found = under_both(x, y)["both"]
    assert [c.verdict for c in found.comparisons] == cells
    effect = found.ruling.effect.mean
    assert effect == pytest.approx(100 * (x + y) / 2, abs=1e-5), "with a margin of 1"
    assert found.verdict == verdict


def test_no_verdict_counts_against_a_row_tuned_at_the_edge_of_its_range(under_both):
    def judged(x, y, *at_edge):
        found = under_both(x, y, at_edge=at_edge)["both"]
        return [[c.verdict for c in found.comparisons], found.verdict]

    assert judged(-0.1, -0.1) == [["fails"] * 2, "fails"]
    assert judged(-0.1, -0.1, "x, fair", "y, fair") == [["undecided"] * 2, "undecided"]
    assert judged(-0.1, -0.1, "x, fair") == [["undecided", "fails"], "fails"]
    assert judged(-0.1, 0.02, "x, fair") == [["undecided", "holds"], "undecided"]
    assert judged(0.1, 0.1, "x, fair") == [["holds", "holds"], "holds"], "in spite of its tuning"
    assert judged(0.1, 0.1, "x, dpsgd", "y, dpsgd") == [["undecided"] * 2, "undecided"]
    assert judged(0.1, 0.1, "y, dpsgd") == [["holds", "undecided"], "holds"]


@pytest.mark.parametrize("gain", [0.0008, 0, -0.0008])
def test_a_row_at_an_edge_is_undecided_whatever_the_sign_of_its_mean(under_both, gain):
    """Shown to be within the margin, a better setting might still gain more than that."""
    found = under_both(gain, gain, at_edge=("x, fair", "y, fair"))["both"]
    assert found.verdict == ("holds" if gain > 0 else "undecided")
    assert found.ruling.reason == ("" if gain > 0 else "fair was tuned at the edge of its range")


def test_a_claim_with_most_of_its_comparisons_in_doubt_is_undecided(under_both):
    one, other = under_both(-0.1, -0.1)["both"].comparisons
    doubtful = replace(other, found=replace(other.found, doubts=Doubts(worse="edge")))

    def verdict(*comparisons):
        return judged_claim(under_both(-0.1, -0.1)["both"].claim, comparisons).verdict

    assert verdict(one, doubtful) == "fails"
    assert verdict(one, doubtful, doubtful) == "undecided"


@pytest.mark.parametrize(
    ("free", "reason"), [(0.505, "nothing to win"), (None, "headroom not measured")]
)
def test_nobody_fails_where_nobody_can_win(run, edition, plain, free, reason):
    """Training without privacy is half a margin ahead, or was not run; a gain is shown all the
    same."""

    def judged(gain):
        gains = {"dpsgd": 0.5, "fair": 0.5 + gain} | ({"sgd": free} if free else {})
        rows = [
            run(method, seed, accuracy + seed / 10 + LITTLE * seed * (method != "dpsgd"))
            for method, accuracy in gains.items()
            for seed in (0, 1)
        ]
        asked = edition(columns={"acc_a": plain["columns"]["acc_a"]})
        (found,) = build_table(asked, rows, {}, epsilon={}, notes=()).claims
        return found.verdict, found.ruling.reason

    assert judged(-0.1) == judged(0) == ("undecided", reason)
    assert judged(0.1) == ("holds", "")


def test_the_page_names_the_rows_that_were_tuned_at_an_edge(build):
    (note,) = [n for n in build(at_edge=["fair"]).notes if n.startswith("Tuned at an edge")]
    assert ": fair. " in note


def test_the_page_says_how_long_was_searched_and_what_was_not_tried():
    tuning = {
        "x, fair": Tuning(trials=16, unsearched="dpsgd"),
        "y, fair": Tuning(trials=16, unsearched="dpsgd"),
        "x, dpsgd": Tuning(trials=64),
        "x, printed": GIVEN,
    }
    assert [*_notes_on_trials(tuning)] == [
        "Trials of each search: 16; 64 for dpsgd.",
        "No verdict beside dpsgd counts against fair: dpsgd is a special case, whose setting not "
        "all searches tried.",
    ]
    assert [*_notes_on_trials({"printed": GIVEN})] == []


def test_each_doubtful_comparison_names_the_row_that_loses(under_both):
    """Four points behind where five are allowed, dpsgd is the row that the claim speaks against."""
    edges = ("x, fair", "x, dpsgd")
    found = under_both(-0.04, 0.1, edges, near={"by": -5.0})
    told = [line[-1] for line in comparisons_grid([*found.values()]).rows]
    assert told == [
        *("undecided: fair was tuned at the edge of its range", "holds"),
        *("undecided: dpsgd was tuned at the edge of its range", "holds"),
    ]


@pytest.mark.parametrize(
    ("again", "verdict"),
    [
        pytest.param(0.02, "holds", id="shown beside both"),
        pytest.param(
            0.1, "undecided: not shown beside a second search", id="as good as the second"
        ),
        pytest.param(0.2, "undecided: not shown beside a second search", id="behind the second"),
    ],
)
def test_a_gap_counts_if_another_search_shows_it_too(run, plain, edition, again, verdict):
    gains = {"dpsgd": 0, "mean": again, "fair": 0.1}
    rows = [
        run(method, seed, 0.5 + gain + seed / 10 + LITTLE * seed * gain)
        for method, gain in gains.items()
        for seed in (0, 1)
    ]
    file = {"methods": [*gains], "again": {"dpsgd": "mean"}}
    asked = edition(**file, columns={"acc_a": plain["columns"]["acc_a"]})
    table = build_table(asked, rows, {}, epsilon={}, notes=())
    (line,) = comparisons_grid(table.claims).rows
    assert line[-1] == verdict
    assert any("is decided only if it is shown beside mean" in note for note in table.notes)
    part = edition(methods=["sgd", "dpsgd", "fair"], again=file["again"])
    assert not part.second_search, "the row is not in this part of the table"


def test_the_rules_tell_of_a_size_where_a_claim_has_one(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a"]}
    without, with_size = (judged((0.75,), {**claim, "by": by}).claim for by in (0, -2))
    assert rules_of([without]) == [RULE]
    assert rules_of([without, with_size]) == [RULE, RULE_OF_BY]


def test_chance_is_told_of_comparisons_of_two_rows_without_a_size_alone(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a"]}
    changes = ({}, {"by": -2}, {"than": [50]})
    plain, by, number = (judged((0.75, 0.79), {**claim, **change}) for change in changes)
    told = "If no row differed from another, 0.1 of them would seem to differ at 5% each;"
    assert chance_line([plain]).startswith(f"The claims make 1 comparison. {told}")
    mixed = chance_line([plain, by, number])
    assert mixed.startswith("The claims make 1 comparison of two rows that claim no size. If")
    assert mixed.endswith("of 1 claim in which one does.")
    assert chance_line([by, number]) == ""


def test_a_diverged_run_leaves_a_claim_undecided(build, run, runs):
    more = [run("fair", 0, 0.9), run("fair", 1, 0.9, status="diverged")]
    assert build([*runs, *more]).claims[0].verdict == "undecided"


def test_a_claim_is_also_judged_by_the_printed_numbers(build, run, runs):
    more = [*runs, run("fair", 0, 0.75), run("fair", 1, 0.79 + LITTLE)]
    reverse = {**PRINTED, ("fair", "acc_a"): Published("71.0", None)}
    for published, said in (
        (PRINTED, "agrees (+4.0 ± 0.5)"),
        (reverse, "against it in 1 of 1 (-4.0 ± 0.3)"),
        ({}, None),
    ):
        grid = build(more, published=published).grids[0]
        assert grid.heading == "Claims"
        gap, says = "+5.0 [+5.0, +5.0] (2)", "fair is more accurate than dpsgd."
        words = ("section 5", said) if said else ("section 5",)
        assert grid.rows == ((says, *words, gap, "holds"),)


def test_the_page_begins_with_what_the_verdicts_come_to(build, run, runs):
    free = [run("sgd", 0, 0.8), run("sgd", 1, 0.84 + LITTLE)]
    more = [*free, *runs[2:], run("fair", 0, 0.65), run("fair", 1, 0.69 + LITTLE)]
    text = build(more, published=PRINTED, published_runs=2).page.markdown
    assert "- 1 claim: 1 fails (fair).\n" in text
    opening = "\n\n0 of 2 printed numbers are reproduced, 2 undecided, none differs; 2 seeds.\n\n"
    assert opening in text
    assert "- Constants: of 2 printed numbers, 0 would be reproduced if" in text
    assert "- Order: of 1 pairs of rows that differ in print, 0 have the printed order and" in text
    assert "order and 1 the reverse (acc_a); 0 are undecided." in text
    assert text.index("- 1 claim: ") < text.index("## Claims") < text.index("## Ours")
