"""Claims about curves: what of a series counts, and that every figure's can fail."""

import math
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from msgspec import convert

from dpbench.comparison.compare.pairs import NOT_MEASURED, NOTHING_TO_WIN
from dpbench.comparison.reproduce.figure import STATISTICS, claims_blocks, figure_rows, judge_figure
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.conditions import Condition, row_name
from dpbench.comparison.tables.edition import claims_of
from dpbench.runs.config.search_path import options
from dpbench.runs.config.table_file import ClaimEntry, Statistic
from dpbench.system.errors import UserError

COINCIDENCE = ("calibration_fig1", "calibration_fig1_images")
"""Figures with claims about distances between runs, not rows: tests/papers/calibration has them."""
FIGURES = [name for name in options("table") if "_fig" in name and name not in COINCIDENCE]
SEEDS = (0, 1, 2)
LITTLE = 1e-7
"""What seeds differ by, as differences that are quite equal decide nothing."""


def run(method, seed, status="complete", metrics=None, calibration=None, under="", **diagnostics):
    return SimpleNamespace(
        config={"choices": {"method": method}, "seed": seed, "under": under},
        status=status, metrics=metrics or {}, calibration=calibration or {},
        diagnostics=diagnostics,
    )  # fmt: skip


def judged(wanted, records):
    """The claims of a target on made-up records."""
    runs = [
        {
            **{"method": r.config["choices"]["method"], "seed": r.config["seed"]},
            **{"condition": r.config["under"], "status": "complete"},
        }
        for r in records
    ]
    return judge_figure(wanted, figure_rows(wanted, runs, records))


def toy(*claims, groups=(), labels=("",)):
    """A target with these claims, each without its words."""
    said = {str(i): {"statement": "So.", "source": "page 1", **one} for i, one in enumerate(claims)}
    conditions = [Condition((("size", int(label[-1])),)) for label in labels if label]
    wanted = claims_of(
        SimpleNamespace(claims=convert(said, dict[str, ClaimEntry]), regime="", read=None),
        conditions,
    )
    return of_claims(*wanted, groups=dict(zip(groups, (3, 8), strict=False)), labels=labels)


def of_claims(*claims, groups, labels, methods=("a", "b")):
    table = SimpleNamespace(numbers_of_groups=groups, methods=methods)
    return SimpleNamespace(claims=claims, labels=[*labels], table=table, scale_label="paper")


@pytest.mark.parametrize(
    ("over", "gap"),
    [("mean", 1), ("max", 4), ("min", -1), ("first", 2), ("last", -1), ("change", -3)],
)
def test_a_claim_is_judged_by_the_statistic_that_it_names(over, gap):
    claim = {"larger": ["a"], "than": ["b"], "in": ["s"], "over": over}
    records = [run("a", 0, s=[3, 5, 0, 0]), run("b", 0, s=[1, 1, 1, 1])]
    (one,) = judged(toy(claim), records)
    assert one.comparisons[0].gaps == {0: gap}


@pytest.mark.parametrize("over", get_args(Statistic))
def test_every_statistic_is_computed_and_said_where_it_is_not_plain(over):
    assert STATISTICS[over](np.array([2.0, 2.0])) == (0 if over == "change" else 2)
    claim = {"larger": ["a"], "than": [0], "in": ["s"], "over": over}
    _, (_, *rules) = claims_blocks(judged(toy(claim), [run("a", 0, s=[1.0])]))
    said = [rule for rule in rules if rule.startswith(f"{over.capitalize()} of a series: ")]
    assert len(said) == (over in ("first", "last", "change"))


def test_the_points_without_a_number_are_neither_the_first_nor_the_last():
    claims = [
        {"larger": ["a"], "than": [0], "in": ["s"], "over": over} for over in ("first", "last")
    ]
    both = judged(toy(*claims), [run("a", 0, s=[math.nan, 1.0, 2.0, math.nan])])
    assert [one.comparisons[0].gaps[0] for one in both] == [1, 2]


def test_the_bins_of_a_reliability_diagram_and_the_shares_of_a_histogram_are_series():
    calibration = {
        "bins": {"count": [0, 4, 4], "confidence": [math.nan, 0.5, 0.9],
                 "accuracy": [math.nan, 0.25, 0.75]},
        "histogram": {"true_class": [6, 1, 1]},
    }  # fmt: skip
    claims = [
        {"larger": ["a"], "than": [0], "in": ["bins/confidence - bins/accuracy"]},
        {"larger": ["a"], "than": [0.5], "in": ["histogram/true_class"], "over": "first"},
        {"larger": ["a"], "than": [0], "in": ["histogram/true_class"], "over": "last"},
    ]
    found = judged(toy(*claims), [run("a", 0, calibration=calibration)])
    assert [one.comparisons[0].gaps[0] for one in found] == pytest.approx([0.2, 0.25, 0.125])
    with pytest.raises(UserError, match="about histogram/true_class, which the run of a lacks"):
        judged(toy(claims[1]), [run("a", 0)])
    (one,) = judged(toy(claims[1]), [run("a", 0, status="diverged")])
    assert math.isnan(one.comparisons[0].gaps[0]), "a run that diverged has no calibration"


def test_a_row_may_be_compared_with_one_under_another_condition():
    labels = ("size 1", "size 2")
    claim = {"smaller": ["a"], "than": ["size 1, a"], "in": ["s"], "under": {"size": [2]}}
    at = dict(zip(labels, (3.0, 1.0), strict=True))
    runs = [run("a", n, under=x, s=[at[x] + n * (x == "size 2")]) for x in at for n in SEEDS[:2]]
    (one,) = judged(toy(claim, labels=labels), runs)
    assert [(c.condition, c.than, c.gaps) for c in one.comparisons] == [
        ("size 2", "size 1, a", {0: -2, 1: -1})
    ]
    (one,) = judged(toy(claim, labels=labels), [r for r in runs if r.config["under"] in labels[1:]])
    assert one.verdict == "not run"


def test_a_difference_is_taken_point_by_point_and_bars_take_its_size():
    claims = [
        {"larger": ["a"], "than": [0], "in": [quantity], "over": "min"}
        for quantity in ("s - t", "|s - t|")
    ]
    records = [run("a", 0, s=[1, 5], t=[4, 1])]
    gaps = [one.comparisons[0].gaps[0] for one in judged(toy(*claims), records)]
    assert gaps == [-3, 3]


def test_points_without_a_number_do_not_count_and_a_diverged_run_is_none():
    claim = {"larger": ["a"], "than": [0], "in": ["s"]}
    records = [run("a", 0, s=[math.nan, 5]), run("a", 1, s=[5.0, 6.0])]
    (one,) = judged(toy(claim), records)
    assert one.comparisons[0].gaps == {0: 5.0, 1: 5.5}
    (one,) = judged(toy(claim), [*records, run("a", 2, status="diverged", s=[1.0])])
    assert math.isnan(one.comparisons[0].gaps[2])
    assert one.verdict == "undecided"


def test_a_claim_is_about_each_group_in_turn_and_names_it():
    claim = {"larger": ["a"], "than": [0], "in": ["loss/<k>"]}
    little = [LITTLE * s for s in SEEDS]
    records = [run("a", s, **{"loss/3": [1 + x], "loss/8": [x - 1]}) for s, x in enumerate(little)]
    (one,) = judged(toy(claim, groups=("three", "eight")), records)
    assert [(c.quantity.name, c.verdict) for c in one.comparisons] == [
        ("loss/three", "holds"), ("loss/eight", "fails"),
    ]  # fmt: skip


def test_a_metric_of_the_end_is_as_good_and_a_series_that_lacks_is_named():
    claim = {"larger": ["a"], "than": [0], "in": ["test/ece"]}
    (one,) = judged(toy(claim), [run("a", 0, metrics={"test/ece": 0.5})])
    assert one.comparisons[0].gaps == {0: 0.5}
    with pytest.raises(UserError, match="about test/ece, which the run of a lacks"):
        judged(toy(claim), [run("a", 0)])


def test_a_page_without_claims_says_nothing_of_them():
    assert claims_blocks([]) == ([], [])


def made_up(wanted, claim, sign):
    """Runs in which the claim's rows have 1 more (or less) of what it is about than others."""
    number = None if isinstance(claim.than[0], str) else claim.than[0]
    about = {(label, row) for label in claim.labels or wanted.labels for row in claim.rows}
    series = {
        part.replace("<k>", str(k)): place
        for quantity in claim.quantities
        for place, part in enumerate(quantity.strip("|").split(" - "))
        for k in wanted.table.group_numbers or [""]
    }
    base = (10, 5) if number is None else (number, 0)
    return [
        run(method, seed, under=label,
            **{s: [0 if claim.over == "change" else value, value]
               for s, p in series.items()
               for gap in [(sign + LITTLE * seed) * (p == 0 and (label, method) in about)]
               for value in [base[p] + gap]})
        for label in wanted.labels for method in wanted.table.methods for seed in SEEDS
    ]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_claim_of_a_figure_is_of_its_rows_and_can_hold_and_can_fail(name):
    wanted = target_of(name, [])
    for claim in wanted.claims:
        methods = wanted.table.methods
        elsewhere = {row_name(label, method) for label in wanted.labels for method in methods}
        assert {*claim.rows} <= {*methods}
        assert {row for row in claim.than if isinstance(row, str)} <= {*methods} | elsewhere
        assert claim.labels != (), f"{claim.name} is about no condition"
        assert claim.statement.endswith(".")
        groups = wanted.table.numbers_of_groups
        alone = of_claims(claim, groups=groups, labels=wanted.labels, methods=methods)
        for sign in (1, -1):
            (one,) = judged(alone, made_up(wanted, claim, sign))
            expected = (sign > 0) == (claim.relation == "larger")
            failed = one.verdict == "fails" or one.ruling.reason in (NOTHING_TO_WIN, NOT_MEASURED)
            assert one.verdict == "holds" if expected else failed, claim.name


def test_the_title_of_a_figure_mentions_a_single_seed():
    assert target_of("misalignment_fig4", ["table.seeds=[0]"]).title.endswith(", one seed")
    assert "seed" not in target_of("misalignment_fig4", []).title
    assert "seed" not in target_of("misalignment_table4", ["table.seeds=[0]"]).title
