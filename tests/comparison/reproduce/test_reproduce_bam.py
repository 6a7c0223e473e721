"""Tables over several conditions, smaller scales, and figures of bias: toys on digits."""

import csv
import io
import shutil
import statistics
from pathlib import Path

import pytest

from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.render import _printed_epsilons, render
from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.records.reading import parse
from dpbench.system import paths as resources

ROOT = Path(__file__).resolve().parents[3]

COMMON = """\
  - override /dataset: digits
  - override /model: logistic
  - override /privacy: noise1
  - override /optimizer: nadam
"""
ABOUT = """\
  paper: "Nobody 2023"
  baseline: sgd
  groups: []
  group_numbers: []
  notes: []
  settings:
    - set: {epochs: 2, batch_size: 128, privacy: {delta: 1.0e-4, accountant: rdp}}
    - when: {method: bam}
      set: {method: {lambda_: 0.05}}
    - when: {dataset: digits_unbalanced}
      choose: {model: mlp}
      set: {optimizer: {lr: 0.001}}
"""
TABLE = f"""\
# @package _global_
# Source: nobody. Cost: seconds. Expect: nothing.
defaults:
  - columns@table.columns: bam_accuracy
{COMMON}
table:
  title: "Digits (Table 1)"
{ABOUT}
  published: toy_bam/table1.csv
  published_runs: 3
  epsilon: null
  methods: [dpsgd, dpsat, bam]
  claims:
    first:
      statement: "bam is more accurate than dpsgd on digits."
      source: page 1
      better: [bam]
      than: [dpsgd]
      in: [accuracy]
      under: {{dataset: [digits]}}
  seeds: [0, 1]
  spread: standard deviation
  conditions:
    - dataset: [digits]
      privacy.noise_multiplier: [2]
    - dataset: [digits_unbalanced]
      privacy.noise_multiplier: [1]
  scales:
    second:
      description: "digits only, 1 of 2 epochs"
      overrides: [dataset=digits, privacy.noise_multiplier=2, epochs=1]
"""
PUBLISHED = """\
dataset,noise_multiplier,method,column,value,spread
digits,2.0,dpsgd,accuracy,60.9,0.30
digits,2.0,dpsat,accuracy,60.9,0.62
digits,2.0,bam,accuracy,61.4,0.40
digits_unbalanced,1.0,bam,accuracy,20.67,
"""
FIGURE = f"""\
# @package _global_
# Source: nobody. Cost: seconds. Expect: nothing.
defaults:
{COMMON}
  - override /diagnostics: bias

diagnostics: {{every: 5, groups: [], quantiles: []}}

table:
  title: "Digits (Figure)"
{ABOUT}
  methods: METHODS
  seeds: [0, 1]
  figure:
    columns: method
    band: range
    panels: [{{title: bias, x: X, lines: {{clipped: step/bias}}}}, MORE]
"""
SIZES = """\
  conditions: [{batch_size: [64, 256]}]
"""
AT_THE_END = "{title: end, x: end/batch_size, lines: {clipped: end/bias}}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """conf/ and benchmarks/ with the toys; this process reads them."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("conf", "benchmarks"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copy(ROOT / "pyproject.toml", root)
    tables = root / "conf" / "table"
    over_steps = (
        FIGURE.replace("METHODS", "[dpsgd, dpsat, bam]").replace("X", "step").replace(", MORE", "")
    )
    over_sizes = FIGURE.replace("METHODS", "[dpsgd]").replace("X", "batch_size") + SIZES
    over_sizes = over_sizes.replace("MORE", AT_THE_END).replace(
        "quantiles: []", "quantiles: [], sizes: [16, 128, 1400]"
    )
    (tables / "toy_bam.yaml").write_text(TABLE)
    (tables / "toy_bam_fig2.yaml").write_text(over_steps)
    (tables / "toy_bam_fig5.yaml").write_text(over_sizes)
    (root / "benchmarks" / "toy_bam").mkdir()
    (root / "benchmarks" / "toy_bam" / "table1.csv").write_text(PUBLISHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "PACKAGE", root / "dpbench")
        yield root


@pytest.fixture(scope="module")
def finished(checkout, tmp_path_factory):
    """The results folder with the whole toy table and its smaller scale. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("finished")
    reproduce("toy_bam", [f"results_dir={folder}"])
    reproduce("toy_bam", [f"results_dir={folder}", "scale=second"])
    return folder


def text(folder, stem):
    return (folder / "tables" / f"{stem}.md").read_text()


def lines(folder, stem):
    return list(csv.DictReader(io.StringIO((folder / "tables" / f"{stem}.csv").read_text())))


def records(folder, stem):
    kept = (folder / "tables" / f"{stem}.records.jsonl").read_text().splitlines()
    return [parse(line, "x") for line in kept]


@pytest.mark.slow
def test_every_condition_has_each_method_with_its_own_runs_and_number(finished):
    rows = {(row["condition"], row["method"]): row for row in lines(finished, "toy_bam")}
    assert list(rows) == [
        (condition, method)
        for condition in ("digits, noise_multiplier 2", "digits_unbalanced, noise_multiplier 1")
        for method in ("dpsgd", "dpsat", "bam")
    ]
    for (condition, method), row in rows.items():
        dataset, noise = condition.split(", noise_multiplier ")
        accuracy = [
            100 * record.metrics["test/accuracy"]
            for record in records(finished, "toy_bam")
            if record.config["choices"]["method"] == method
            and record.config["choices"]["dataset"] == dataset
            and record.config["privacy"]["noise_multiplier"] == float(noise)
        ]
        assert (len(accuracy), row["n"]) == (2, "2")
        assert float(row["ours"]) == pytest.approx(sum(accuracy) / 2, abs=1e-3)
    assert rows["digits, noise_multiplier 2", "dpsat"]["published"] == "60.9"
    assert rows["digits_unbalanced, noise_multiplier 1", "bam"]["published"] == "20.67"
    assert rows["digits_unbalanced, noise_multiplier 1", "dpsgd"]["published"] == ""


def test_a_rule_chooses_the_model_of_a_data_set(finished):
    models = {
        (r.config["choices"]["dataset"], r.config["choices"]["model"])
        for r in records(finished, "toy_bam")
    }
    assert models == {("digits", "logistic"), ("digits_unbalanced", "mlp")}


@pytest.mark.slow
def test_the_printed_epsilon_is_the_budget_of_the_condition():
    printed = _printed_epsilons(target_of("bam_table1", ["dataset=cifar10"]))
    assert printed == {f"cifar10, epsilon {e}": f"{e}" for e in (1, 2, 10)}
    assert _printed_epsilons(target_of("bam_table1", ["privacy.epsilon=3"])) == {}


@pytest.mark.parametrize("scale", ["", "-second"])
def test_a_claim_is_judged_at_every_scale_by_gaps_paired_by_seed(finished, scale):
    (row,) = csv.DictReader(
        io.StringIO((finished / "tables" / f"toy_bam{scale}.claims.csv").read_text())
    )
    assert (row["condition"], row["row"]) == ("digits, noise_multiplier 2", "bam")
    by_seed = {
        (r.config["choices"]["method"], r.config["seed"]): 100 * r.metrics["test/accuracy"]
        for r in records(finished, f"toy_bam{scale}")
        if r.config["choices"]["dataset"] == "digits"
    }
    gaps = [by_seed["bam", seed] - by_seed["dpsgd", seed] for seed in (0, 1)]
    assert float(row["gap"]) == pytest.approx(sum(gaps) / 2, abs=1e-4)
    half = 12.706 * abs(gaps[0] - gaps[1]) / 2  # Student's t with one degree of freedom
    assert float(row["high"]) - float(row["low"]) == pytest.approx(2 * half, rel=1e-3, abs=1e-4)
    assert (row["n"], float(row["printed_gap"])) == ("2", pytest.approx(0.5))


def test_a_smaller_scale_says_what_it_shrinks_and_reproduces_nothing(finished):
    said = text(finished, "toy_bam-second")
    assert said.startswith("# Digits (Table 1), at scale second: digits only, 1 of 2 epochs (not")
    assert {row["verdict"] for row in lines(finished, "toy_bam-second")} == {"other scale"}
    assert {r.config["epochs"] for r in records(finished, "toy_bam-second")} == {1}
    assert {r.config["epochs"] for r in records(finished, "toy_bam")} == {2}


def test_one_condition_is_a_part_of_the_table_and_trains_nothing(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    shutil.copytree(finished / "runs", tmp_path / "runs")
    reproduce(
        "toy_bam", [f"results_dir={tmp_path}", "dataset=digits", "privacy.noise_multiplier=2"]
    )
    whole = [
        row
        for row in lines(finished, "toy_bam")
        if row["condition"] == "digits, noise_multiplier 2"
    ]
    assert lines(tmp_path, "toy_bam-part") == whole


@pytest.mark.slow
def test_the_same_records_in_any_order_give_the_same_bytes(finished):
    for scale in ([], ["scale=second"]):
        wanted = target_of("toy_bam", scale)
        kept = records(finished, wanted.stem)
        assert render(wanted, kept) == render(wanted, kept[::-1])


@pytest.mark.long
def test_bias_over_training_has_a_line_per_method(checkout, tmp_path):
    reproduce("toy_bam_fig2", [f"results_dir={tmp_path}"])
    points = lines(tmp_path, "toy_bam_fig2")
    assert {p["method"] for p in points} == {"dpsgd", "dpsat", "bam"}
    assert {p["x"] for p in points} == {"0", "5", "10", "15", "20"}
    assert all(float(p["low"]) >= 0 for p in points)


@pytest.mark.slow
def test_bias_over_batch_sizes_is_each_run_s_mean(checkout, tmp_path):
    reproduce("toy_bam_fig5", [f"results_dir={tmp_path}"])
    every_point = lines(tmp_path, "toy_bam_fig5")
    points = [p for p in every_point if p["panel"] == "bias"]
    assert [(p["x"], p["runs"]) for p in points] == [("64", "2"), ("256", "2")]
    means = {64: [], 256: []}
    for record in records(tmp_path, "toy_bam_fig5"):
        bias = record.diagnostics["step/bias"]
        assert len(bias) > 1
        means[record.config["batch_size"]].append(statistics.mean(bias))
    for point, of_runs in zip(points, means.values(), strict=True):
        assert float(point["mean"]) == pytest.approx(statistics.mean(of_runs))
        assert float(point["deviation"]) == pytest.approx(statistics.stdev(of_runs))
    # At fixed parameters the bias of a batch is that of all plus what the draw adds to it.
    at_end = [p for p in every_point if p["panel"] == "end"]
    assert [(p["x"], p["runs"]) for p in at_end] == [
        (size, f"{4 * 3}")
        for size in ("16", "128", "1400")  # runs, repeats
    ]
    small, middle, large = (float(p["mean"]) for p in at_end)
    assert small > middle > large > 0


def test_figure_3_is_timed_and_not_trained(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("dpbench.benchmarks.step_cost.figure.bench", asked.extend)
    said = reproduce("bam_fig3", [f"results_dir={tmp_path}", "device=cpu", "scale=cpu_hour"])
    out = tmp_path / "tables" / "bam_fig3-cpu_hour"
    assert asked == [
        *("suite=depth", "repeats=3", "case=mlp_1,mlp_2,mlp_4", "device=cpu", f"out={out}")
    ]
    assert str(out) in said
