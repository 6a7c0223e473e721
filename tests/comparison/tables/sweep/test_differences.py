"""Differences to a baseline method: paired by seed, on the same terms, or none."""

import csv
import io
import math
import re
import statistics
from dataclasses import replace
from shutil import rmtree

import pytest
from scipy import stats

from dpbench.comparison.tables.sweep.command import table
from dpbench.comparison.verify.tables import conflicting_records
from dpbench.runs.records.collect import readable_records_in
from dpbench.runs.records.publish import publish
from dpbench.system.errors import UserError
from tests.comparison.tables.sweep.made_up import record, swept

BASELINE = "baseline=dpsgd"


def by_hand(records, method, privacy, metric="test/accuracy"):
    """The values of a metric in percent by seed, of one method and budget."""
    return {
        r.config["seed"]: 100 * r.metrics[metric]
        for r in records
        if (r.config["choices"]["method"], r.config["choices"]["privacy"]) == (method, privacy)
    }


def test_differences_to_a_baseline_are_paired_by_seed_with_students_interval(tmp_path):
    records = [
        record(r.config["choices"]["method"], r.config["choices"]["privacy"], seed, value**power)
        for power, r in enumerate(swept(), 1)
        for seed, value in enumerate((0.91, 0.93))
    ]
    for one in records:
        one.save(tmp_path)
    arguments = ["rows=method", "columns=privacy", "baseline=dpsgd", "metrics=accuracy,ece"]
    table([str(tmp_path), f"out={tmp_path / 't'}", *arguments])
    lines = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    for line in lines:
        ours, theirs = (
            by_hand(records, method, line["privacy"], line["metric"])
            for method in (line["method"], "dpsgd")
        )
        if line["method"] == "dpsgd":
            assert line["difference"] == line["low"] == line["pairs"] == ""
            continue
        gaps = [ours[seed] - theirs[seed] for seed in ours]
        low, high = float(line["low"]), float(line["high"])
        half = stats.t.ppf(0.975, 1) * stats.sem(gaps)
        assert float(line["difference"]) == pytest.approx(statistics.fmean(gaps), rel=1e-5)
        assert (high - low) / 2 == pytest.approx(half, rel=1e-4)
        assert (high + low) / 2 == pytest.approx(statistics.fmean(gaps), rel=1e-4)
        assert line["pairs"] == "2"
    assert len(lines) == 16


def uneven(tmp_path):
    """A better method with a learning rate of its own, whose gaps to the baseline differ by seed,
    a seed of one of them alone, and a diverged run."""
    values = {"dpsgd": [0.5, 0.6, 0.7, 0.9], "bam": [0.53, 0.65, 0.72], "dpsat": [0.1, 0.2, 0.3]}
    for method, found in values.items():
        for seed, value in enumerate(found):
            one = record(method, "eps3", seed, value, lr=0.1 if method == "dpsgd" else 0.3)
            if method == "dpsat" and seed == 1:
                one = replace(one, status="diverged")
            one.save(tmp_path)


def test_the_section_of_differences_has_common_seeds_and_no_row_of_the_baseline(tmp_path):
    uneven(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=method,optimizer.lr", BASELINE])
    section = said.partition("## Differences to DP-SGD\n\n")[2].splitlines()
    half = stats.t.ppf(0.975, 2) * statistics.stdev([3, 5, 2]) / math.sqrt(3)
    low, high = 10 / 3 - half, 10 / 3 + half
    assert section[:4] == [
        "| method | lr | accuracy (%) |",
        "| --- | ---: | ---: |",
        f"| BAM | 0.3 | +3.3 [{low:+.1f}, {high:+.1f}] (3), undecided |",
        "| DP-SAT | 0.3 | -, undecided: a run of dpsat diverged |",
    ]
    assert section[4] == ""
    assert "Differences: mean over common seeds" in said
    assert "less than the margin (accuracy (%) 0.5)" in said


def compared(tmp_path, *gaps, searched=()):
    """What is said of a method that is above the baseline by these fractions."""
    for seed, gap in enumerate(gaps):
        record("dpsgd", "eps3", seed, 0.8 + seed / 50).save(tmp_path)
        record("dpsgd_f", "eps3", seed, 0.8 + seed / 50 + gap, lr=0.3).save(tmp_path)
    for method in searched:
        trial = record(method, "eps3", 9)
        replace(trial, config={**trial.config, "validation": 0.1}).save(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=method", BASELINE])
    (line,) = (x for x in said.splitlines() if x.startswith("| DPSGD-F | ") and "[" in x)
    return line.rpartition("), ")[2].removesuffix(" |"), said


def test_runs_without_a_metric_are_not_said_to_have_diverged(tmp_path):
    """A regression has no accuracy, and records of earlier versions lack some metrics."""
    for seed in range(3):
        for method, more in {"dpsgd": {"test/brier": 0.1 * seed}, "bam": {}}.items():
            one = record(method, seed=seed)
            replace(one, metrics={**one.metrics, **more}).save(tmp_path)
    replace(record("dpsat"), metrics={"test/brier": 0.1}).save(tmp_path)
    metrics = "metrics=accuracy,brier"
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=method", metrics, BASELINE])
    assert "| BAM | 0.0 (3), undecided | - |" in said
    assert "| DP-SAT | - | +0.100 (1), undecided |" in said


BOTH = ("dpsgd", "dpsgd_f")
NAMES = {"dpsgd": "DP-SGD", "dpsgd_f": "DPSGD-F"}


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((0.05, 0.051, 0.049), "better"),
        ((-0.05, -0.051, -0.049), "worse"),
        ((0.001, -0.001, 0.0), "equivalent"),
        ((0.05, -0.03, 0.01), "undecided"),
    ],
)
def test_a_difference_has_one_of_four_verdicts(tmp_path, gaps, verdict):
    assert compared(tmp_path, *gaps, searched=BOTH)[0] == verdict


@pytest.mark.parametrize(
    ("sign", "searched", "verdict"),
    [
        (-1, ("dpsgd",), "undecided: fewer trials: dpsgd_f 0, dpsgd 1"),
        (-1, ("dpsgd_f",), "worse"),
        (1, ("dpsgd_f",), "undecided: fewer trials: dpsgd 0, dpsgd_f 1"),
        (1, ("dpsgd",), "better"),
        (-1, (), "worse, untuned"),
        (1, (), "better, untuned"),
    ],
)
def test_a_method_that_no_search_tuned_loses_by_its_settings(tmp_path, sign, searched, verdict):
    found, said = compared(tmp_path, 0.05 * sign, 0.051 * sign, searched=searched)
    assert found == verdict
    missing = ", ".join(
        name for name in ("DPSGD-F", "DP-SGD") if name not in map(NAMES.get, searched)
    )
    assert f"Untuned: there is no search of {missing} in this folder" in said


def test_where_all_were_searched_nothing_is_said_of_it(tmp_path):
    assert "Untuned" not in compared(tmp_path, 0.05, 0.051, searched=BOTH)[1]


def test_means_of_several_methods_say_that_no_search_tuned_them_without_a_baseline_too(tmp_path):
    for name, methods in {"one": BOTH[:1], "two": BOTH}.items():
        for method in methods:
            record(method, "eps3", 0).save(tmp_path / name)
        said = table([str(tmp_path / name), f"out={tmp_path / 't'}", "rows=method"])
        assert ("Untuned: there is no search of DPSGD-F, DP-SGD in this folder" in said) == (
            name == "two"
        )


def changed(one, statement=(), **settings):
    """A record with other settings and other terms of its epsilon."""
    return replace(
        one, config={**one.config, **settings}, privacy={**one.privacy, **dict(statement)}
    )


@pytest.mark.parametrize(
    ("settings", "statement", "said"),
    [
        ({"epochs": 10}, {}, "other epochs"),
        ({"dataset": {"test_share": 0.5}}, {}, "other dataset.test_share"),
        ({"mislabelled": {"share": 0.1}}, {}, "other mislabelled"),
        ({"optimizer": {"lr": 7.0}, "schedule": {"name": "cosine"}}, {}, ""),
        ({"privacy": {"epsilon": 2.0}}, {"pld": 2.7}, ""),
        ({"privacy": {"epsilon": 2.0}}, {"pld": 2.0}, ""),
        ({"privacy": {"epsilon": 4.0}}, {"pld": 4.0}, "bam has the larger epsilon"),
        ({}, {"delta": 1e-3}, "other delta"),
        ({}, {"unit": "user"}, "other unit of privacy"),
        ({}, {"adjacency": "zero out one example"}, "other adjacency"),
        ({"privacy": {"epsilon": 8.0}}, {"guarantee": "none", "pld": None}, "epsilon: no proof"),
        ({"privacy": {"epsilon": 8.0}}, {"guarantee": "none", "pld": math.inf}, ""),
    ],
)
def test_runs_on_other_terms_are_undecided_and_say_why(tmp_path, settings, statement, said):
    for seed in (0, 1, 2):
        base = changed(record("dpsgd", "eps3", seed, 0.5 + seed / 9), epochs=1)
        base.save(tmp_path)
        gap = (0.2, 0.21, 0.19)[seed]
        changed(
            changed(record("bam", "eps3", seed, 0.5 + seed / 9 + gap), epochs=1),
            statement,
            **settings,
        ).save(tmp_path)
    page = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=method", BASELINE])
    assert f"(3), undecided: {said} |" in page if said else "(3), better, untuned |" in page


def test_runs_without_seeds_are_averaged_and_never_paired(tmp_path):
    """As published, where nobody may learn the seeds; whether or not the runs are beside them."""
    secure = {"arithmetic": "secure"}
    for seed, value in enumerate((0.7, 0.72, 0.77)):
        for method in BOTH:
            changed(record(method, "eps3", seed, value + len(method) / 99), secure).save(tmp_path)
    published = tmp_path / "tables" / "mine.records.jsonl"
    with pytest.warns(UserWarning, match="losses compose"):
        publish([f"results_dir={tmp_path}", f"out={published}"])
    beside = table([str(tmp_path), f"out={tmp_path / 't'}", BASELINE])
    rmtree(tmp_path / "runs")
    alone = table([str(tmp_path), f"out={tmp_path / 't'}", BASELINE])
    rows = [line for line in beside.splitlines() if line.startswith("| ")]
    assert all("(3)" in line for line in rows[2:4])
    assert "(3), " in rows[-1]
    assert alone.splitlines()[:6] == beside.splitlines()[:6]
    assert "| DPSGD-F | - |" in alone
    assert not list(conflicting_records({published: readable_records_in(published)}))


def test_a_baseline_with_several_rows_is_ambiguous(tmp_path):
    uneven(tmp_path)
    record("dpsgd", "eps3", 0, 0.4, lr=0.2).save(tmp_path)
    arguments = [str(tmp_path), f"out={tmp_path / 't'}", "rows=method,optimizer.lr", BASELINE]
    assert "| BAM | 0.3 | - |" in table(arguments)
    assert "| BAM | 0.3 | +3.3 [" in table([*arguments, "optimizer.lr=0.1,0.3"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["baseline=dpsgx"], "no selected run has the method baseline=dpsgx: did you mean dpsgd"),
        (["baseline=dpsgd", "method=bam"], "no selected run has the method baseline=dpsgd"),
        (
            ["baseline=bam", "rows=optimizer.lr", "method=bam,dpsat"],
            "add method to rows or columns",
        ),
        (["baseline=bam", "method=bam"], "all selected runs are of the method baseline=bam."),
    ],
)
def test_a_baseline_that_cannot_be_compared_with_is_refused(tmp_path, arguments, sentence):
    uneven(tmp_path)
    with pytest.raises(UserError, match=re.escape(sentence)):
        table([str(tmp_path), f"out={tmp_path / 't'}", *arguments])
    assert not list(tmp_path.glob("t.*"))


def test_seeds_that_are_left_out_are_named_with_the_mean_that_all_of_them_have(tmp_path):
    for seed, value in enumerate((0.9, 0.8, 0.85, 0.6)):
        record("bam", "eps3", seed, value).save(tmp_path)
        record("dpsgd", "eps3", seed, 0.8).save(tmp_path)
    arguments = [str(tmp_path), f"out={tmp_path / 't'}"]
    assert "left out" not in table(arguments)
    said = table([*arguments, "seed=0,2", "method=bam"])
    assert (
        "no test can tell whether some were picked. BAM: accuracy 87.5 over 2 of the 4 seeds that "
        "were run, and accuracy 78.8 over all (left out: 1, 3)."
    ) in said
    assert "DP-SGD" not in said
