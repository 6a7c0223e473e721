"""The page on records names every field of a real record, and no field that is not there."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from dpbench.learning.metrics.registry import parse_name
from dpbench.runs.config.compose import compose
from dpbench.runs.config.settings import SCIENTIFIC
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.record import Record
from dpbench.runs.training.trainer import fit

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()


def named(heading: str) -> set[str]:
    """The names in the first column of the table below a heading."""
    part = re.split(r"^#", PAGE.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A real one, as it is read back."""
    run = build(compose(["epochs=1", "model=logistic"]))
    return json.loads(fit(run, tmp_path_factory.mktemp("data")).json())


def test_fields_metrics_and_the_configuration_s_scientific_part_are_those_of_a_record(record):
    unwritten = {"signed", "source", "text"}
    assert named("Fields") == {field.name for field in fields(Record)} - unwritten | {"checksum"}
    assert named("Fields") == record.keys()
    groups = "|".join(map(str, range(10)))
    measured = {re.sub(rf"/({groups})$", "/<group>", name) for name in record["metrics"]}
    fitted = {f"train_set/{name}" for name in ("accuracy", "loss")}
    fitted |= {f"{name}/<group>" for name in fitted}
    described = {f"test/{name}" for name in named("metrics")} | fitted
    assert described <= measured
    for name in measured - described:  # a new one, which its own file describes
        assert parse_name(name).metric.compute.__doc__
    assert named("How runs are named") == set(SCIENTIFIC)
    assert record["config"].keys() == {*SCIENTIFIC, "choices"}


@pytest.mark.parametrize(
    ("part", "optional"),
    [("privacy", set()), ("provenance", {"weights", "built", "engine_reason", "graph"})],
)
def test_a_part_has_the_keys_that_are_named(record, part, optional):
    assert named(part) - optional == record[part].keys()
