"""Claims about curves: what of a series counts, and that every figure's can fail."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from dpbench.config.compose import options
from dpbench.errors import UserError
from dpbench.reproduce.figure_claims import claims_blocks, judge_figure
from dpbench.reproduce.target import target_of
from dpbench.tables.claims import claims_of

FIGURES = [name for name in options("table") if "_fig" in name]
SEEDS = (0, 1, 2)


def run(method, seed, status="complete", metrics=None, **diagnostics):
    config = {"choices": {"method": method}, "seed": seed}
    return SimpleNamespace(
        config=config, status=status, metrics=metrics or {}, diagnostics=diagnostics
    )


def judged(wanted, records):
    """The claims of a target on made-up records, under its first condition."""
    rows = [(r.config["choices"]["method"], r.config["seed"]) for r in records]
    runs = pd.DataFrame(rows, columns=["method", "seed"])
    runs = runs.assign(condition=wanted.labels[0], status="complete")
    return judge_figure(wanted, runs, records)


def toy(*claims, groups=()):
    """A target with these claims, each without its words."""
    said = {str(i): {"statement": "So.", "source": "page 1", **one} for i, one in enumerate(claims)}
    table = {"groups": list(groups), "group_numbers": [3, 8][: len(groups)]}
    return SimpleNamespace(claims=said, labels=[""], table=table, scale_label="paper")


def test_the_mean_the_largest_or_the_smallest_point_of_a_series_counts():
    claims = [
        {"larger": ["a"], "than": ["b"], "in": ["s"], "over": over}
        for over in ("mean", "max", "min")
    ]
    records = [run("a", 0, s=[1, 5, 0]), run("b", 0, s=[1, 1, 1])]
    gaps = [one.comparisons[0].gaps[0] for one in judged(toy(*claims), records)]
    assert gaps == [1, 4, -1]


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
    assert one.comparisons[0].gaps == (5.0, 5.5)
    (one,) = judged(toy(claim), [*records, run("a", 2, status="diverged", s=[1.0])])
    assert math.isnan(one.comparisons[0].gaps[2])
    assert one.verdict == "undecided"


def test_a_claim_is_about_each_group_in_turn_and_names_it():
    claim = {"larger": ["a"], "than": [0], "in": ["loss/<k>"]}
    records = [run("a", s, **{"loss/3": [1.0], "loss/8": [-1.0]}) for s in SEEDS]
    (one,) = judged(toy(claim, groups=("three", "eight")), records)
    assert [(c.quantity.name, c.verdict) for c in one.comparisons] == [
        ("loss/three", "holds"), ("loss/eight", "does not hold"),
    ]  # fmt: skip


def test_a_metric_of_the_end_is_as_good_and_a_series_that_lacks_is_named():
    claim = {"larger": ["a"], "than": [0], "in": ["test/ece"]}
    (one,) = judged(toy(claim), [run("a", 0, metrics={"test/ece": 0.5})])
    assert one.comparisons[0].gaps == (0.5,)
    with pytest.raises(UserError, match="about test/ece, which the run of a lacks"):
        judged(toy(claim), [run("a", 0)])


def test_a_page_without_claims_says_nothing_of_them():
    assert claims_blocks([]) == ([], [])


def made_up(wanted, claim, sign):
    """Runs in which the claim's rows have 1 more (or less) of what it is about than others."""
    against_number = not isinstance(claim.than[0], str)
    series = {
        part.replace("<k>", str(k)): place
        for quantity in claim.quantities
        for place, part in enumerate(quantity.strip("|").split(" - "))
        for k in wanted.table["group_numbers"] or [""]
    }
    rows = dict.fromkeys([*claim.rows, *(t for t in claim.than if isinstance(t, str))])
    base = (0, 0) if against_number else (10, 5)
    return [
        run(method, seed, **{s: [base[p] + sign * (p == 0 and method in claim.rows)] * 2
                             for s, p in series.items()})
        for method in rows for seed in SEEDS
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_claim_of_a_figure_is_of_its_rows_and_can_hold_and_can_fail(name):
    wanted = target_of(name, [])
    for claim in claims_of(wanted.claims):
        named = {*claim.rows, *(row for row in claim.than if isinstance(row, str))}
        assert named <= {*wanted.table["methods"]}
        assert claim.statement.endswith(".")
        alone = toy(wanted.claims[claim.name])
        alone.table = {k: wanted.table[k] for k in ("groups", "group_numbers")}
        for sign in (1, -1):
            (one,) = judged(alone, made_up(wanted, claim, sign))
            expected = (sign > 0) == (claim.relation == "larger")
            assert one.verdict == ("holds" if expected else "does not hold"), claim.name


def test_a_figure_of_one_seed_says_so_in_its_title():
    assert target_of("misalignment_fig4", ["table.seeds=[0]"]).title.endswith(", one seed")
    assert "seed" not in target_of("misalignment_fig4", []).title
    assert "seed" not in target_of("misalignment_table4", ["table.seeds=[0]"]).title
