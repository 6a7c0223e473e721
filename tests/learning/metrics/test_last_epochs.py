"""The median of the MCE over the last ten epochs, from the curves that a record holds."""

import math
import statistics
from pathlib import Path

import pytest

from dpbench.learning.metrics.derived import last_epochs_metrics
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.frames import frame
from dpbench.runs.records.reading import load, parse

TABLES = Path(__file__).resolve().parents[3] / "results" / "tables"
MCE = [0.9, 0.1, 0.5, 0.3, 0.8, 0.2, 0.7, 0.4, 0.6, 0.35, 0.15, 1.0]


def curves(mce, steps_per_epoch=7):
    """As measured at the start and after each epoch."""
    epochs = list(range(len(mce)))
    return {"epoch": epochs, "step": [steps_per_epoch * e for e in epochs], "tested/mce": mce}


def test_the_metric_is_the_median_of_the_validation_split_or_nan():
    said = last_epochs_metrics({"epochs": 11}, curves(MCE))
    assert said == {"test/mce_last10": statistics.median(MCE[-10:])} == {"test/mce_last10": 0.45}
    assert last_epochs_metrics({"epochs": 11}, curves([*MCE[:-1], 0.61])) == said
    assert [*last_epochs_metrics({"epochs": 11, "validation": 0.1}, curves(MCE))] == [
        "validation/mce_last10"
    ]
    said = last_epochs_metrics({"epochs": 11}, curves([*MCE[:-2], math.nan, 0.2]))
    assert math.isnan(said["test/mce_last10"])


def test_measurements_within_an_epoch_do_not_count():
    series = curves(MCE)
    within = {"epoch": [10], "step": [74], "tested/mce": [1.0]}
    between = {k: [*v[:-1], *within[k], v[-1]] for k, v in series.items()}
    assert last_epochs_metrics({"epochs": 11}, between) == last_epochs_metrics(
        {"epochs": 11}, series
    )


@pytest.mark.parametrize(
    ("config", "diagnostics"),
    [
        ({"epochs": 9}, curves(MCE[:10])),
        ({"epochs": 12}, curves(MCE)),  # it ended early
        ({"epochs": 11}, {k: v[::2] for k, v in curves(MCE).items()}),
        ({"epochs": 11}, {}),
        ({"epochs": 11}, {"step": [], "epoch": [], "tested/mce": []}),
        ({"epochs": 11}, {"tested/mce": MCE}),
        ({"epochs": 11}, {"step": [1, 2], "epoch": [math.inf], "tested/mce": MCE}),
        ({"epochs": None}, curves(MCE)),
        ({"epochs": 10**30}, curves(MCE)),
        ({}, curves(MCE)),
    ],
)
def test_without_ten_epochs_there_is_none(config, diagnostics):
    assert last_epochs_metrics(config, diagnostics) == {}


def test_committed_records_have_it_where_they_have_the_curves():
    lines = (TABLES / "calibration_table2-part.records.jsonl").read_text().splitlines()
    records = [parse(line, "calibration_table2-part") for line in lines]
    for record, value in zip(records, frame(records)["test/mce_last10"], strict=True):
        assert value == statistics.median(record.diagnostics["tested/mce"][-10:])
        assert "test/mce_last10" not in record.metrics


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [9, 10])
def test_a_run_with_curves_has_it_from_ten_epochs_on(tmp_path, epochs):
    asked = ["dataset=digits", "model=logistic", "batch_size=512", "diagnostics=curves"]
    record = load(load_or_run(run_config([*asked, f"epochs={epochs}", f"results_dir={tmp_path}"])))
    assert ("test/mce_last10" in record.measured) == (epochs == 10)
