"""Metrics of plug-ins: in records, tables and the report; and none that cannot be used."""

import math

import pytest
import torch

from dpbench.comparison.dashboard.values import metric_entry
from dpbench.comparison.tables.sweep.command import table
from dpbench.learning.metrics.evaluation import evaluate
from dpbench.learning.metrics.registry import REGISTRY, added_metrics, parse_name
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.code import code_of, is_stale
from dpbench.runs.records.reading import load
from tests.plugin_files import OTHER, write

MODULE = """
from dpbench.learning.metrics.metric import Margin, Metric

def share(outputs, targets, groups):
    return (outputs.argmax(dim=1) == 0).double().mean()

ZEROS = Metric("share of zeros", "percent", 2, "lower", margin=Margin(0.5), compute=share)
FAILS = Metric("fails", "", 2, None, compute=lambda outputs, targets, groups: outputs.gone)
NUMBERS = Metric("of numbers", "", 2, None, compute=share, task="regression")
WITHOUT = Metric("without", "", 2, None)
EUROS = Metric("cost", "euros", 2, None, compute=share)
DOWN = Metric("cost", "", 2, "down", compute=share)
UNNAMED = Metric(3, "", 2, None, compute=share)

def changes(outputs, targets, groups):
    print("changing")
    outputs.zero_(), targets.zero_(), groups.zero_()
    return 1.0

def leaves(outputs, targets, groups):
    raise SystemExit(3)

CHANGES = Metric("changes", "", 2, None, compute=changes)
LEAVES = Metric("leaves", "", 2, None, compute=leaves)
"""
POINTS = "clipworks-1.2.dist-info/entry_points.txt"


def measured(outputs, targets, groups):
    return evaluate("classification", outputs, torch.ones(2), targets, groups, ("a", "b"))


def declare(plugin, **metrics):
    lines = [f"{name} = clipworks.measures:{value}" for name, value in metrics.items()]
    write(
        plugin, {"clipworks/measures.py": MODULE, POINTS: "\n".join(["[dpbench.metrics]", *lines])}
    )


@pytest.mark.slow
def test_a_run_has_the_metric_and_tables_and_the_report_show_it(plugin, tmp_path):
    declare(plugin, zeros="ZEROS", numbers="NUMBERS")
    results = f"results_dir={tmp_path / 'results'}"
    path = load_or_run(run_config(["model=logistic", "epochs=1", "method=sgd", results]), True)
    record = load(path)
    assert 0 < record.metrics["test/zeros"] < 0.5
    assert "test/numbers" not in record.metrics
    assert "train_set/zeros" not in record.metrics
    assert record.provenance["metrics"] == {"zeros": "clip-works 1.2", "numbers": "clip-works 1.2"}
    of_it = [str(tmp_path / "results"), "rows=method", "columns=privacy", "metrics=zeros"]
    shown = table([*of_it, f"out={tmp_path / 'table'}"])
    assert f"{100 * record.metrics['test/zeros']:.2f}" in str(shown)
    assert metric_entry("test/zeros") == {
        "name": "test/zeros", "label": "share of zeros", "title": "share of zeros",
        "percent": True, "better": "lower", "kind": "utility",
    }  # fmt: skip


@pytest.mark.slow
def test_its_changed_code_makes_records_that_have_it_stale_and_no_others(plugin, tmp_path):
    declare(plugin, zeros="ZEROS")
    results = f"results_dir={tmp_path / 'results'}"
    record = load(load_or_run(run_config(["model=logistic", "epochs=1", "method=sgd", results])))
    others = code_of(record.config, record.metrics.keys() - {"test/zeros"})
    assert not is_stale(record)
    path = plugin / "clipworks" / "measures.py"
    path.write_text(path.read_text().replace("== 0", "== 1"))
    assert is_stale(record)
    assert code_of(record.config, record.metrics.keys() - {"test/zeros"}) == others


def test_a_metric_that_fails_is_nan_with_a_warning(plugin):
    declare(plugin, fails="FAILS", zeros="ZEROS")
    with pytest.warns(UserWarning, match=r"the metric fails failed, so it is NaN: AttributeError"):
        found = measured(torch.eye(2), torch.arange(2), torch.zeros(2).long())
    assert found["zeros"] == 0.5
    assert math.isnan(found["fails"])


def test_a_metric_that_changes_what_it_is_given_changes_nothing_else(plugin):
    declare(plugin, changes="CHANGES", zeros="ZEROS")
    given = torch.eye(2), torch.tensor([1, 1]), torch.tensor([1, 1])
    found = measured(*given)
    assert (found["changes"], found["zeros"]) == (1.0, 0.5)
    assert torch.equal(given[0], torch.eye(2))
    assert given[1].tolist() == given[2].tolist() == [1, 1]


def test_a_metric_that_ends_the_process_is_nan(plugin):
    declare(plugin, leaves="LEAVES")
    with pytest.warns(UserWarning, match="the metric leaves failed, so it is NaN: SystemExit: 3"):
        found = measured(torch.eye(2), *2 * [torch.ones(2).long()])
    assert math.isnan(found["leaves"])


def test_a_module_of_metrics_that_ends_the_process_is_ignored(plugin, capsys):
    declare(plugin, zeros="ZEROS")
    write(plugin, {"clipworks/measures.py": "print('bye')\nraise SystemExit(3)\n"})
    with pytest.warns(UserWarning, match="zeros is ignored: .* cannot be imported: SystemExit: 3"):
        assert added_metrics() == {}
    assert capsys.readouterr() == ("", "bye\n")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("accuracy", "ZEROS", "dpbench has one of this name"),
        ("a/b", "ZEROS", "its name must be a small letter, then"),
        ("gone", "GONE", r"clipworks.measures:GONE cannot be imported: AttributeError"),
        ("without", "WITHOUT", "is not a Metric with a function to compute it"),
        ("euros", "EUROS", 'its unit must be percent or nats or "", and is .euros.'),
        ("down", "DOWN", "its better must be higher or lower or null, and is 'down'"),
        ("unnamed", "UNNAMED", "its label must be text, and is 3"),
    ],
)
def test_a_metric_that_cannot_be_used_is_ignored_with_a_warning(plugin, name, value, why):
    declare(plugin, **{name: value})
    with pytest.warns(UserWarning, match=rf"the metric {name} is ignored: .*{why}"):
        assert added_metrics() == {}
    assert parse_name("test/accuracy").metric is REGISTRY["accuracy"]


def test_of_two_metrics_of_one_name_neither_is_taken(plugin):
    """Which comes first depends on where they are installed, and no table says which it shows."""
    declare(plugin, zeros="ZEROS", cost="CHANGES")
    points = "[dpbench.metrics]\ncost = clipworks.measures:ZEROS\n"
    write(plugin, OTHER | {"other-1.dist-info/entry_points.txt": points})
    why = "clipworks.measures:CHANGES and clipworks.measures:ZEROS have one name"
    with pytest.warns(UserWarning, match=f"the metric cost is ignored: {why}"):
        assert [*added_metrics()] == ["zeros"]
