import math
import random

import numpy as np
import pytest

from dpbench.comparison.reproduce.data import to_csv
from dpbench.comparison.tables.privacy import NO_PROOF
from dpbench.comparison.tables.published import Published
from dpbench.system.errors import UserError

PRINTED = {
    ("sgd", "acc_a"): Published("81.5", "0.2"),
    ("dpsgd", "acc_a"): Published("75.0", "0.1"),
    ("dpsgd", "pi_ab"): Published("9.0", "1.0"),
}


def cell(table, row, column):
    return next(c for c in table.cells if (c.row, c.column.name) == (row, column))


def block(table, heading):
    return next(grid for grid in table.grids if grid.heading.startswith(heading))


def line(table, heading, row):
    return next(texts for texts in block(table, heading).rows if texts[0] == row)


def test_a_cell_has_mean_standard_error_n_and_difference(build):
    found = cell(build(published=PRINTED), "dpsgd", "acc_a")
    assert (found.ours, found.n) == (pytest.approx(72.0), 2)
    assert found.spread == pytest.approx(np.std([70, 74], ddof=1) / math.sqrt(2))
    assert found.difference == pytest.approx(-3.0)


def test_the_specification_says_which_spread(build):
    found = cell(build(spread="standard deviation"), "dpsgd", "acc_a")
    assert found.spread == pytest.approx(np.std([70, 74], ddof=1))


def test_gaps_are_made_per_seed_over_the_asked_methods_alone(build, run, runs):
    more = [*runs[:2], run("dpsgd", 0, 0.70), run("dpsgd", 1, 0.92)]
    assert cell(build(more), "dpsgd", "pi_ab").ours == pytest.approx(10.0)
    more = [*runs, run("adam", 0, 0.1), run("dpsgd", 7, 0.1)]
    assert build(more) == build()


def test_cells_without_runs_or_baseline_are_missing(build):
    table = build()
    assert line(table, "Ours", "sgd") == ("sgd", "81.0 ± 1.0 (2)", "-", "inf")
    assert {c.column.name for c in table.cells if c.row == "sgd"} == {"acc_a"}
    table = build(published={("fair", "acc_a"): Published("80.0", None)})
    assert line(table, "Ours", "fair") == ("fair", "missing", "missing", "-")
    assert cell(table, "fair", "acc_a").verdict == "missing"
    assert "fair has no run with seed 0, 1." in table.notes
    table = build([], published=PRINTED)
    assert {c.verdict for c in table.cells} == {"missing"}
    assert to_csv(table).count("missing") == 5


def test_rows_of_blocks_fit_their_heads_and_impossible_ones_show_a_reason(build):
    table = build(reasons={"fair": "it needs two classes."})
    assert line(table, "Ours", "fair") == ("fair", "not possible: it needs two classes.")
    assert cell(table, "fair", "acc_a").verdict == "not possible"
    assert not any("fair" in note for note in table.notes)
    assert r"\multicolumn{3}{l}{not possible: it needs two classes.}" in table.latex
    for grid in build(published=PRINTED).grids:
        assert {len(row) for row in grid.rows} == {len(grid.head)}


def test_a_row_that_is_only_planned_says_what_it_waits_for(build):
    table = build(planned={"fair": "its search is still to be made"})
    assert line(table, "Ours", "fair") == ("fair", "not run: its search is still to be made")
    assert not any("fair" in note for note in table.notes)


def test_a_diverged_run_makes_the_mean_nan_and_is_named(build, run, runs):
    diverged = run("dpsgd", 1, 0.5, status="diverged")
    table = build([*runs[:3], diverged], published=PRINTED)
    found = cell(table, "dpsgd", "acc_a")
    assert math.isnan(found.ours)
    assert (found.n, found.verdict) == (2, "no number")
    assert line(table, "Ours", "dpsgd")[1] == "NaN (2)"
    assert "dpsgd diverged with seed 1: its means are NaN." in table.notes


def test_gradients_that_were_not_finite_are_counted_under_the_table(build, run):
    spoilt = [run("dpsgd", 1, 0.5, nonfinite=3), run("dpsgd", 0, 0.5, nonfinite=12)]
    table = build([*spoilt, run("fair", 0, 0.5, nonfinite=0)])
    said = "dpsgd: gradients were not finite and counted as zero (exact, not covered), 12 with seed"
    assert [note for note in table.notes if "not finite" in note] == [f"{said} 0, 3 with seed 1."]


def test_a_missing_baseline_run_makes_costs_nan_and_is_named(build, runs):
    table = build(runs[1:])
    assert math.isnan(cell(table, "dpsgd", "pi_ab").ours)
    assert cell(table, "dpsgd", "acc_a").ours == pytest.approx(72.0)
    assert "dpsgd has no sgd run to pair with for seed 0." in table.notes


def test_one_run_has_no_spread(build, runs):
    table = build([runs[0], runs[2]], published=PRINTED)
    assert line(table, "Ours", "dpsgd")[1] == "70.0 (1)"
    assert cell(table, "dpsgd", "acc_a").verdict == "undecided"


def test_both_variants_have_a_row_and_the_same_published_number(build, run, runs):
    paper = [run("dpsgd", seed, 0.75, variant="paper") for seed in (0, 1)]
    table = build([*paper, *runs], published=PRINTED, published_runs=2)
    assert [row[0] for row in block(table, "Ours").rows][1:3] == ["dpsgd", "dpsgd (paper)"]
    found = cell(table, "dpsgd (paper)", "acc_a")
    assert (found.published, found.verdict) == (PRINTED["dpsgd", "acc_a"], "reproduced")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, "two runs of"),
        ({"dataset": "other"}, "one dataset, not other, toy"),
        ({"model": "cnn"}, "one model, not cnn, mlp"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(build, run, runs, changes, complaint):
    with pytest.raises(UserError, match=complaint):
        build([*runs, run("dpsgd", 1, 0.7, **changes)])


def test_arms_may_differ_in_data_and_model(build, run):
    runs = [run("sgd", 0, 0.9), run("dpsgd", 0, 0.7, dataset="other", model="cnn")]
    with pytest.raises(UserError, match="one dataset, not other, toy"):
        build(runs)
    assert [row[0] for row in block(build(runs, arm=None), "Ours").rows][:2] == ["sgd", "dpsgd"]


def test_an_unmeasured_metric_is_refused(build):
    column = {"metric": "test/acuracy", "factor": 1, "digits": 1, "better": "lower"}
    with pytest.raises(UserError, match="no column test/acuracy"):
        build(columns={"acc": column})


def test_another_scale_is_in_the_title_and_on_every_cell(build):
    table = build(published=PRINTED, scale_label="2 of 20 epochs")
    assert table.title == "Toy (not at the paper's scale)"
    assert {c.verdict for c in table.cells if c.published} == {"other scale"}
    assert not [grid for grid in table.grids if grid.heading == "What a constant would pass"]


def test_an_unpublished_column_is_held_against_the_published_one_it_names(build):
    columns = {
        name: {"metric": "test/accuracy/m", "factor": 100, "digits": 1, "better": "higher"}
        for name in ("acc_a", "again")
    }
    columns["again"]["printed"] = "acc_a"
    printed = {cell: number for cell, number in PRINTED.items() if cell[1] == "acc_a"}
    table = build(published=printed, columns=columns, published_runs=2)
    assert cell(table, "dpsgd", "again").published == PRINTED["dpsgd", "acc_a"]
    assert cell(table, "dpsgd", "again").verdict == "undecided"


def test_a_training_metric_that_the_first_records_lack_is_missing(build, run, runs):
    columns = {"loss": {"metric": "train_set/loss/m", "factor": 1, "digits": 2, "better": "lower"}}
    table = build(columns=columns, claims={})
    assert line(table, "Ours", "dpsgd")[1] == "missing"
    measured = [{**row, "train_set/loss/m": 0.25} for row in runs]
    diverged = run("fair", 0, 0.5, status="diverged", **{"train_set/loss/m": 0.1})
    table = build([*measured, diverged], columns=columns, claims={})
    assert line(table, "Ours", "dpsgd")[1] == "0.25 ± 0.00 (2)"
    assert line(table, "Ours", "fair")[1] == "NaN (1)"


def test_runs_without_a_metric_that_others_have_do_not_count(build, run):
    column = {"metric": "test/mce_last10", "factor": 100, "digits": 1, "better": "lower"}
    having = [run("dpsgd", seed, 0.7, **{"test/mce_last10": 0.2 + seed / 10}) for seed in (0, 1)]
    lacking = [run("fair", seed, 0.7) for seed in (0, 1)]
    ended = run("sgd", 0, 0.7, status="diverged", **{"test/mce_last10": 0.3})
    table = build([*having, *lacking, ended], columns={"mce": column}, claims={})
    assert (cell(table, "dpsgd", "mce").ours, cell(table, "dpsgd", "mce").n) == (25.0, 2)
    assert (cell(table, "fair", "mce").n, cell(table, "fair", "mce").verdict) == (0, "missing")
    assert (cell(table, "sgd", "mce").n, math.isnan(cell(table, "sgd", "mce").ours)) == (1, True)


def test_epsilon_is_shown_as_strongly_as_it_holds(build, run, runs):
    none = {"privacy/guarantee": "none", "privacy/why": "Examples are mixed."}
    table = build([*runs, run("fair", 0, 0.8, **none), run("fair", 1, 0.8, **none)])
    assert line(table, "Privacy", "dpsgd")[1:6] == ("3.41", "3.41", "3.41", "3.10", "2.90")
    fair = line(table, "Privacy", "fair")
    assert fair[:6] == ("fair", "3.41", "3.41", *[NO_PROOF] * 3)
    assert fair[6:] == ("1e-06", "float", "none", "Examples are mixed.")
    assert line(table, "Privacy", "sgd")[1:6] == ("-", "-", "inf", "inf", "inf")


def test_an_epsilon_is_shown_as_no_proof_or_as_the_largest(build, run, runs):
    unknown = dict.fromkeys(["privacy/rdp", "privacy/pld", "privacy/gdp", "privacy/delta"])
    table = build([*runs, run("fair", 0, 0.8, **unknown, **{"privacy/guarantee": "none"})])
    assert line(table, "Privacy", "fair")[2:7] == ("3.41", *[NO_PROOF] * 3, "-")
    weaker = run("dpsgd", 1, 0.74, **{"privacy/guarantee": "approximate", "privacy/rdp": 4.0})
    assert line(build([*runs[:3], weaker]), "Privacy", "dpsgd")[3] == "4.00"
    assert line(build([*runs[:3], weaker]), "Privacy", "dpsgd")[8] == "approximate"


@pytest.mark.parametrize("render", [lambda t: t.page.markdown, to_csv, lambda t: t.latex])
def test_the_order_of_the_runs_does_not_change_a_byte(build, run, runs, render):
    more = [*runs, run("fair", 0, 0.8), run("fair", 1, 0.1, variant="paper")]
    texts = set()
    for seed in range(5):
        random.Random(seed).shuffle(more)
        texts.add(render(build(more, published=PRINTED)))
    assert len(texts) == 1


@pytest.mark.parametrize("render", [lambda t: t.page.markdown, to_csv, lambda t: t.latex])
def test_every_verdict_is_among_the_known_ones(build, render):
    verdicts = {c.verdict for c in build(published=PRINTED).cells}
    assert verdicts <= {"reproduced", "close", "differs", "undecided", "missing", "-"}
    assert all(verdict in render(build(published=PRINTED)) for verdict in verdicts)


def test_the_worst_group_is_found_per_run_and_then_averaged(build, run):
    column = {"metric": "test/worst_group_accuracy", "factor": 100, "digits": 1, "better": "higher"}
    claim = {"statement": "It is.", "source": "ours", "better": ["dpsgd"], "than": ["sgd"]}
    changes = {"columns": {"worst": column}, "claims": {"one": {**claim, "in": ["worst"]}}}
    runs = [run("sgd", 0, 0.95), run("sgd", 1, 0.95), run("dpsgd", 0, 0.7), run("dpsgd", 1, 0.96)]
    assert cell(build(runs, **changes), "dpsgd", "worst").ours == pytest.approx(80.0)
