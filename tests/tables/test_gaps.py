import math

import pytest
from scipy import stats

from dpbench.tables import Published
from dpbench.tables.gaps import direction

PRINTED = {
    ("dpsgd", "acc_a"): Published("75.0", "0.3"),
    ("fair", "acc_a"): Published("76.5", "0.4"),
    ("fair", "pi_ab"): Published("9.0", "1.0"),
}


def gaps(table):
    found = [grid for grid in table.grids if grid.heading.startswith("Gaps to")]
    return found[0].rows if found else None


def test_a_gap_is_paired_by_seed_and_stands_beside_the_printed_one(build, run, runs):
    """dpsgd 70 and 74, fair 71 and 77: gaps of 1 and 3, however much the seeds differ."""
    more = [*runs, run("fair", 0, 0.71), run("fair", 1, 0.77), run("fair", 7, 0.1)]
    (row,) = gaps(build(more, published=PRINTED, scale="2 of 20 epochs"))
    assert row == ("fair", "acc_a", "+2.0 ± 1.4 (2)", "+1.5 ± 0.5", "unclear")


def test_at_the_paper_s_scale_and_without_print_there_are_none(build, run, runs):
    more = [*runs, run("fair", 0, 0.71), run("fair", 1, 0.77)]
    assert gaps(build(more, published=PRINTED)) is None
    assert gaps(build(more, scale="2 of 20 epochs")) is None
    assert gaps(build(more, published=PRINTED, scale="small", reference=None)) is None


def test_seeds_that_are_not_shared_make_no_gap(build, run, runs):
    (row,) = gaps(build([*runs[:3], run("fair", 1, 0.7)], published=PRINTED, scale="small"))
    assert row[2:] == ("- (0)", "+1.5 ± 0.5", "no number")


def test_gaps_are_between_rows_of_one_condition(build, run):
    def under(condition, add):
        made = [
            run(m, s, a + add + s / 10) for m, a in (("dpsgd", 0.5), ("fair", 0.6)) for s in (0, 1)
        ]
        return [{**row, "condition": condition} for row in made]

    printed = {
        (f"{condition}, {method}", "acc_a"): Published(value, None)
        for condition, values in (("x", ("50.0", "49.0")), ("y", ("50.0", "53.0")))
        for method, value in zip(("dpsgd", "fair"), values, strict=True)
    }
    columns = {"acc_a": {"metric": "test/accuracy/m", "factor": 100, "digits": 1}}
    columns["acc_a"] |= {"tolerance": 1.0, "better": "higher"}
    table = build(
        [*under("x", 0.0), *under("y", 0.2)],
        published=printed,
        conditions=["x", "y"],
        scale="small",
        columns=columns,
    )
    assert gaps(table) == (
        ("x, fair", "acc_a", "+10.0 ± 0.0 (2)", "-1.0", "opposite"),
        ("y, fair", "acc_a", "+10.0 ± 0.0 (2)", "+3.0", "as printed"),
    )
    (order,) = (grid for grid in table.grids if grid.heading.startswith("Order"))
    assert order.rows == (("acc_a", "1 of 2"),)


@pytest.mark.parametrize(
    ("values", "printed", "said"),
    [
        ([1.0, 1.1, 0.9], 2.0, "as printed"),
        ([1.0, 1.1, 0.9], -2.0, "opposite"),
        ([1.0, 1.1, 0.9], 0.0, "tie in print"),
        ([1.0], 2.0, "unclear"),
        ([], 2.0, "no number"),
        ([1.0, math.nan], 2.0, "no number"),
    ],
)
def test_directions(values, printed, said):
    assert direction(values, printed) == said


def test_a_direction_is_clear_just_when_zero_is_outside_the_interval_of_a_t_test():
    for shift in (0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5):
        values = [shift - 0.4, shift, shift + 0.5]
        p = stats.ttest_1samp(values, 0).pvalue
        assert (direction(values, 1.0) == "as printed") == (p < 0.05)
