import math

import pandas as pd
import pytest
from scipy import stats

from dpbench.system.errors import UserError
from dpbench.tables.claims.comparisons import evidence, interval, verdict_of
from dpbench.tables.claims.quantities import PrintedNumber, Quantity
from dpbench.tables.markdown import to_markdown
from dpbench.tables.published import Published
from dpbench.tables.runs import Row
from dpbench.tables.spec import Column, table_spec
from dpbench.tables.table import build_table

PRINTED = {
    ("dpsgd", "acc_a"): Published("75.0", "0.3"),
    ("fair", "acc_a"): Published("79.0", "0.4"),
}
ABOUT = {"statement": "So.", "source": "page 1"}


@pytest.fixture
def judged(build, run, runs):
    """The one claim of a table, judged on accuracies of `fair`; those of dpsgd are 70 and 74."""

    def _judged(fair, claim=None, **changes):
        accuracies = fair.items() if isinstance(fair, dict) else enumerate(fair)
        more = [run("fair", seed, accuracy) for seed, accuracy in accuracies]
        if claim:
            changes["claims"] = {"it": {**ABOUT, **claim}}
        (found,) = build([*runs, *more], **changes).claims
        return found

    return _judged


def test_a_gap_is_paired_by_seed_however_much_the_seeds_differ(judged):
    """70 and 74 against 71 and 77, and a third seed that dpsgd does not have."""
    (found,) = judged({0: 0.71, 1: 0.77, 7: 0.1}, published=PRINTED).comparisons
    assert found.gaps == pytest.approx([1.0, 3.0])
    assert found.printed.value == pytest.approx(4.0)
    assert found.printed.error == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("fair", "verdict"),
    [
        ((0.75, 0.79), "holds"),
        ((0.65, 0.69), "does not hold"),
        ((0.71, 0.81), "undecided"),
        ((0.75,), "undecided"),
        ((0.70, 0.74), "does not hold"),
        ((), "not run"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_its_gaps_at_every_scale(judged, fair, verdict):
    for scale in ("paper", "2 of 20 epochs"):
        assert judged(fair, scale_label=scale).verdict == verdict


def test_an_effect_of_less_than_half_of_the_printed_one_is_none_at_the_paper_s_scale(judged):
    """Gaps of -0.05 and +0.15: the interval holds 0, and ends at 1.4 where 4 is printed."""
    fair = (0.6995, 0.7415)
    low, high = interval(judged(fair).comparisons[0].gaps)
    assert low < 0 < high < 2
    assert judged(fair, published=PRINTED).verdict == "does not hold"
    assert judged(fair, published=PRINTED, scale_label="small").verdict == "undecided"
    assert judged(fair).verdict == "undecided"


def test_an_effect_that_may_be_more_than_half_of_the_printed_one_is_undecided(judged):
    """Gaps of -2.1 and +6.1, where 4 is printed: the interval reaches beyond 2."""
    found = judged((0.679, 0.801), published=PRINTED)
    low, high = interval(found.comparisons[0].gaps)
    assert low < 0 < 2 < high
    assert found.verdict == "undecided"


def test_a_row_under_another_condition_is_found_by_its_full_name_in_runs_and_in_print():
    def row(condition, gain):
        values = {"seed": [0, 1], "acc": [0.5 + gain, 0.6 + gain]}
        return Row(condition, "fair", "corrected", pd.DataFrame(values))

    printed = {(f"{x}, fair", "acc"): PrintedNumber(n, 0, 0) for x, n in (("x", 70), ("y", 73))}
    data = evidence(["x", "y"], True, [row("x", 0), row("y", 0.02)], printed)
    accuracy = Quantity("acc", (Column("acc", "acc", 100, 1, "higher", "acc"),))
    assert data.gaps("y", "fair", "x, fair", accuracy) == pytest.approx((2, 2))
    assert data.printed_gap("y", "fair", "x, fair", accuracy).value == 3
    assert data.gaps("y", "fair", "fair", accuracy) == (0, 0), "under the same condition"
    assert data.gaps("y", "fair", "z, fair", accuracy) == ()
    assert data.printed_gap("y", "fair", "z, fair", accuracy) is None


def test_one_comparison_that_fails_is_enough_and_all_must_hold(judged):
    """By accuracy `fair` gains 5 with both seeds, and so loses as much in cost."""
    claim = {"than": ["dpsgd"], "in": ["acc_a", "pi_ab"]}
    assert judged((0.75, 0.79), {**claim, "better": ["fair"]}).verdict == "holds"
    assert judged((0.75, 0.79), {**claim, "larger": ["fair"]}).verdict == "does not hold"
    both = {"better": ["fair"], "than": ["dpsgd", "sgd"], "in": ["acc_a"]}
    found = judged((0.75, 0.79), both)
    assert [one.verdict for one in found.comparisons] == ["holds", "undecided"]
    assert found.verdict == "undecided"


def test_better_is_what_the_column_says_and_smaller_and_larger_are_what_they_say(judged):
    """Group f has 90% throughout, so the cost gap is what a run lost on group m."""
    for claim, verdict in [
        ({"better": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}, "holds"),
        ({"smaller": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}, "holds"),
        ({"larger": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}, "does not hold"),
    ]:
        assert judged((0.75, 0.79), claim).verdict == verdict


def test_a_claim_may_be_about_the_difference_of_two_columns(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["pi_ab - acc_a"]}
    found = judged((0.75, 0.79), claim)
    assert found.comparisons[0].gaps == pytest.approx([-10.0, -10.0])
    assert found.verdict == "holds"


def test_a_claim_may_be_about_the_mean_of_columns(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["mean(acc_a, pi_ab)"]}
    found = judged((0.75, 0.79), claim)
    alone = [judged((0.75, 0.79), {**claim, "in": [c]}) for c in ("acc_a", "pi_ab")]
    gaps = zip(*(one.comparisons[0].gaps for one in alone), strict=True)
    assert found.comparisons[0].gaps == pytest.approx([sum(pair) / 2 for pair in gaps])


def test_a_claim_may_ask_for_more_or_for_no_less_than_so_much(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a"]}
    five_more, one_less = (0.75, 0.79), (0.69, 0.73)
    assert judged(five_more, {**claim, "by": 4}).verdict == "holds"
    assert judged(five_more, {**claim, "by": 6}).verdict == "does not hold"
    assert judged(one_less, {**claim, "by": -2}).verdict == "holds"
    assert judged(one_less, {**claim, "by": -0.5}).verdict == "does not hold"


def test_a_row_may_be_held_against_a_number(judged):
    claim = {"larger": ["fair"], "than": [50], "in": ["acc_a"]}
    assert judged((0.75, 0.79), claim).comparisons[0].gaps == pytest.approx([25, 29])


def test_a_claim_about_some_conditions_is_judged_under_those(run, plain):
    def under(condition, add):
        rows = [
            run(m, s, a + s / 10) for m, a in (("dpsgd", 0.5), ("fair", 0.5 + add)) for s in (0, 1)
        ]
        return [{**row, "condition": condition} for row in rows]  # fmt: skip

    claim = plain["claims"]["fair"]
    columns = {"acc_a": plain["columns"]["acc_a"]}
    claims = {"in x": {**claim, "under": ["x"]}, "in both": claim, "else": {**claim, "under": []}}
    spec = table_spec({**plain, "conditions": ["x", "y"], "claims": claims, "columns": columns})
    frame = pd.DataFrame([*under("x", 0.1), *under("y", -0.1)])
    table = build_table(spec, frame, {}, epsilon={}, notes=())
    assert [one.verdict for one in table.claims] == ["holds", "does not hold", "not run"]


def test_a_diverged_run_leaves_a_claim_undecided(build, run, runs):
    more = [run("fair", 0, 0.9), run("fair", 1, 0.9, status="diverged")]
    assert build([*runs, *more]).claims[0].verdict == "undecided"


def test_p_is_that_of_the_wilcoxon_test_in_the_claim_s_direction(judged):
    assert judged((0.75, 0.79)).comparisons[0].p == 0.25
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["pi_ab"]}
    assert judged((0.75, 0.79), claim).comparisons[0].p == 0.25
    assert judged((0.65, 0.69)).comparisons[0].p == 1


def test_a_claim_is_also_judged_by_the_printed_numbers(build, run, runs):
    more = [*runs, run("fair", 0, 0.75), run("fair", 1, 0.79)]
    reverse = {**PRINTED, ("fair", "acc_a"): Published("71.0", None)}
    for published, said in ((PRINTED, "agrees"), (reverse, "against it in 1 of 1"), ({}, None)):
        grid = build(more, published=published).grids[0]
        assert grid.heading == "Claims"
        gap, says = "+5.0 [+5.0, +5.0] (2)", "fair is more accurate than dpsgd."
        words = ("section 5", said) if said else ("section 5",)
        assert grid.rows == ((says, *words, gap, "holds"),)


def test_the_page_begins_with_what_the_verdicts_come_to(build, run, runs):
    more = [*runs, run("fair", 0, 0.65), run("fair", 1, 0.69)]
    text = to_markdown(build(more, published=PRINTED, published_runs=2))
    assert "- 1 claim: 1 does not hold (fair).\n" in text
    opening = "\n\n1 of 2 printed numbers are reproduced, 1 differs (fair 1); 2 seeds.\n\n"
    assert opening in text
    assert "- Constants: of 2 printed numbers, 0 would be reproduced or close" in text
    assert "- Order: of 1 pairs of rows that differ in print, 0 have the printed order and" in text
    assert "order and 1 the reverse (acc_a); 0 are undecided." in text
    assert text.index("- 1 claim: ") < text.index("## Claims") < text.index("## Ours")


def test_an_unknown_column_in_a_claim_is_named(judged):
    claim = {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_b"]}
    with pytest.raises(UserError, match="A claim is about acc_b: did you mean acc_a"):
        judged((0.75, 0.79), claim)


def test_a_direction_is_clear_just_when_zero_is_outside_the_interval_of_a_t_test():
    for shift in (0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5):
        values = [shift - 0.4, shift, shift + 0.5]
        p = stats.ttest_1samp(values, 0).pvalue
        assert (verdict_of(values) == "holds") == (p < 0.05)
        assert (verdict_of([-value for value in values]) == "does not hold") == (p < 0.05)


def test_no_interval_without_numbers_and_the_whole_line_for_one():
    assert interval([1.0]) == (-math.inf, math.inf)
    assert all(map(math.isnan, interval([1.0, math.nan])))
