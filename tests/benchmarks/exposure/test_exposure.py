"""Attacks on real runs: inserted canaries, and losses of mislabelled targets."""

import csv
from pathlib import Path

import pytest
from dpbench.benchmarks.exposure.membership import Exposure, exposure
from dpbench.benchmarks.exposure.page import _findings
from dpbench.benchmarks.exposure.rows import ExposureRow, black_box

from dpbench.audit.inference import gdp_epsilon, one_run_epsilon
from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.verify.tables import unsupported_lines
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.collect import readable_records_in
from dpbench.runs.records.reading import parse
from dpbench.runs.training.trainer import fit

pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")


def row(group: str, accuracy: float, auc: float, method: str = "dpsgd") -> ExposureRow:
    found = Exposure(auc, 0.01, 0.0)
    return ExposureRow(method, group, accuracy, 3.0, None, (0.0, 0.0), None, found)


@pytest.mark.parametrize(
    ("accuracies", "aucs", "said"),
    [
        ((0.7, 0.88), (0.6, 0.55), "dpsgd: a loses 10.0 points of accuracy and b 2.0; by the black "
         "box a is more exposed (AUC 0.600 for a and 0.550 for b)."),
        ((0.7, 0.88), (0.55, 0.6), "a is less exposed"),
        ((0.7, 0.88), (0.55, 0.57), "neither is shown to be the more exposed"),
        ((0.78, 0.6), (0.6, 0.5), "dpsgd: b loses 30.0 points of accuracy and a 2.0; by the black "
         "box b is less exposed"),
        ((0.8, 0.91), (0.6, 0.5), "dpsgd: no group loses accuracy; by the black box a"),
    ],
)  # fmt: skip
def test_a_sentence_says_whether_those_who_lose_are_the_more_exposed(accuracies, aucs, said):
    rows = [row("a", 0.8, 0.5, "sgd"), row("b", 0.9, 0.5, "sgd")]
    rows += [row(*values) for values in zip("ab", accuracies, aucs, strict=True)]
    (sentence,) = _findings(rows, "sgd")
    assert said in sentence


FITS = ["method=sgd", "optimizer=adam", "optimizer.lr=1e-3", "batch_size=64", "epochs=60"]
HIDES = ["method=dpsgd", "privacy=noise1", "privacy.noise_multiplier=4", "epochs=3"]


def black_box_of(overrides, tmp_path):
    """The attack on four runs with 300 wrong labels among 1,438."""
    common = ["mislabelled=300", "model.widths=[128]", *overrides]
    runs = [build(compose([*common, f"seed={seed}"])) for seed in range(4)]
    return black_box([fit(run, tmp_path, quiet=True) for run in runs])


@pytest.mark.long
def test_runs_that_memorise_wrong_labels_are_found_out(tmp_path):
    memorised = black_box_of(FITS, tmp_path)
    halves = memorised.later_runs(None).halves(0)
    assert exposure(*memorised.all_runs(None)).auc > 0.8
    assert gdp_epsilon(*halves, 1e-5, 0.95) > 2
    assert one_run_epsilon(*halves, 1e-5, 0.95) > 1


@pytest.mark.slow
def test_private_runs_that_learn_little_show_nothing(tmp_path):
    private = black_box_of(HIDES, tmp_path)
    found = exposure(*private.all_runs(None))
    assert abs(found.auc - 0.5) < 4 * found.error
    assert gdp_epsilon(*private.later_runs(None).halves(0), 1e-5, 0.95) < 0.5


@pytest.mark.long
def test_the_figure_has_both_attacks_by_method_and_group(tmp_path):
    asked = [
        *("dataset=digits", "table.groups=['2','8']", "table.seeds=[0,1,2,3]", "epochs=1"),
        *("table.methods=[sgd,dpsgd]", "mislabelled=200", "table.compute.canaries=200"),
        *("privacy.delta=1e-3", f"results_dir={tmp_path}"),
    ]
    page = reproduce("exposure_adult", asked)
    for row in ("| sgd | all |", "| sgd | 8 |", "| dpsgd | all |", "| dpsgd | 2 |"):
        assert page.count(row) == 1
    assert "- dpsgd: " in page
    assert page.count("| - | - | - |") == 3  # no canaries without noise
    files = {path.suffix for path in tmp_path.glob("tables/exposure_adult*")}
    assert files == {".md", ".csv", ".json", ".png", ".svg", ".pdf", ".jsonl"}
    assert len(list(tmp_path.glob("runs/*.json"))) == 8


TABLES = Path(__file__).parents[3] / "results" / "tables"


@pytest.mark.slow
def test_the_committed_black_box_is_that_of_the_committed_records():
    """Areas, to their last digit, from the losses in the records."""
    lines = (TABLES / "exposure_adult.records.jsonl").read_text().splitlines()
    records = [parse(line, "exposure_adult.records.jsonl") for line in lines]
    by_method = {name: [] for name in ("sgd", "dpsgd", "dpsgd_global_adapt")}
    for record in records:
        by_method.get(record.config["choices"]["method"], []).append(record)
    with (TABLES / "exposure_adult.csv").open() as file:
        rows = {(row["method"], row["group"]): row for row in csv.DictReader(file)}
    for method, runs in by_method.items():
        attack = black_box(runs)
        for group, name in ((None, "all"), (0, "male"), (1, "female")):
            found = exposure(*attack.all_runs(group))
            printed = rows[method, name]["AUC (black box)"]
            assert printed == f"{found.auc:.3f} ± {found.error:.3f}"


def test_a_computed_table_is_not_verified_as_if_it_were_rendered():
    path = TABLES / "exposure_adult.records.jsonl"
    assert list(unsupported_lines(path, readable_records_in(path))) == []
