"""Files of the configuration that are wrong: one sentence that names the file, or what it lacks."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpbench.learning.data.digits import Digits
from dpbench.runs.config.chosen_options import option_node
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import as_overrides
from dpbench.runs.execution.prepare import build, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from tests.plugin_files import write

GLOBAL = "# @package _global_\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bound: [1\n  x: :", "method/mine.yaml, line 2 is not valid YAML: expected ',' or ']'"),
        ("a: b: c", "method/mine.yaml, line 1 is not valid YAML: mapping values are not allowed"),
        ("\ta: 1", "method/mine.yaml, line 1 is not valid YAML: found character '\\t'"),
        ("a: !!python/object:os.system {}", "mine.yaml, line 1 is not valid YAML: could not dete"),
        ("bound: 1.0\n", "method has no _target_ (the class or function to build); got"),
        ("", "method has no _target_"),
        ("- a", "method has no _target_"),
        ("x: ${nowhere}", "Interpolation key 'nowhere' not found"),
    ],
)
def test_a_broken_option_is_one_sentence(tmp_path, text, sentence):
    added = write(tmp_path / "added", {"method/mine.yaml": text})
    with pytest.raises(UserError) as told:
        run_of(run_config(["method=mine", *as_overrides([added])]))
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_bytes(b"x\xff\n")
    with pytest.raises(UserError, match=r"method/mine\.yaml is not UTF-8 text"):
        compose(["method=mine", *as_overrides([tmp_path])])


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ("model", "model has no _target_"),
        ("launcher", "launcher has no _target_"),
        ("diagnostics", "diagnostics has no _target_"),
        ("optimizer", "optimizer._partial_ is missing: write _partial_: true beside _target_"),
    ],
)
def test_an_option_without_a_target_is_refused_in_any_group(tmp_path, group, sentence):
    added = write(tmp_path / "added", {f"{group}/mine.yaml": "a: 1\n"})
    with pytest.raises(UserError) as told:
        run_of(run_config([f"{group}=mine", *as_overrides([added])]))
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{GLOBAL}table: 3\n", "table must be a mapping, got 3"),
        (f"{GLOBAL}table: [1\n", "table/mine.yaml, line 3 is not valid YAML"),
    ],
)
def test_a_broken_table_is_one_sentence(tmp_path, text, sentence):
    added = write(tmp_path / "added", {"table/mine.yaml": text})
    with pytest.raises(UserError) as told:
        compose(["+table=mine", *as_overrides([added])])
    assert sentence in str(told.value)


def test_a_broken_file_is_left_to_hydra_where_options_are_read_alone(tmp_path, monkeypatch):
    write(tmp_path, {"method/mine.yaml": "a: [1\n"})
    monkeypatch.setattr("dpbench.config.search_path.option_folders", lambda: (tmp_path,))
    assert option_node.__wrapped__("method", "mine") is None


@pytest.mark.parametrize("error", [KeyError("target"), ValueError("could not convert 'x'")])
def test_data_without_an_expected_column_are_one_sentence(monkeypatch, error):
    def load(self, folder, seed):
        raise error

    monkeypatch.setattr(Digits, "load", load)
    run = build(compose([]))
    with pytest.raises(UserError, match="the data of digits cannot be read from here: "):
        run.load(Path("here"))


def test_data_of_another_shape_or_type_are_one_sentence(monkeypatch):
    run = build(compose([]))
    data = run.load(Path("unread"))
    for spoiled in (
        replace(data, test=replace(data.test, targets=data.test.targets.float())),
        replace(data, train=replace(data.train, inputs=data.train.inputs[:, :, 1:])),
    ):
        monkeypatch.setattr(Digits, "load", lambda *_, spoiled=spoiled: spoiled)
        with pytest.raises(
            UserError, match=r"the data of digits have .*: a file is truncated or is a d"
        ):
            run.load(Path("unread"))
