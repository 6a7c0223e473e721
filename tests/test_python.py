"""`from dpbench import run, frame, reproduce`: light to import, and the same as the commands."""

import functools
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import dpbench
from dpbench.comparison.reproduce import MarkdownPage, command
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.python_api import as_overrides
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import Unreadable, load, read
from dpbench.system.errors import UserError
from tests.runs.records.plain_record import record

SMALL = {"epochs": 1, "model": "logistic", "batch_size": 512}


def test_importing_takes_nothing_that_takes_long():
    code = (
        "import sys; from dpbench import audit, reproduce; import dpbench; "
        "print({'torch', 'hydra', 'pandas', 'numpy'} & {*sys.modules}, callable(reproduce))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(dpbench.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set() True"


def test_the_package_of_the_tables_can_be_called_whatever_was_imported(monkeypatch):
    from dpbench import reproduce

    monkeypatch.setattr(command, "reproduce", lambda table, overrides: f"{table} {overrides}")
    page = reproduce("demo", "epochs=1", scale="cpu_hour")
    assert page == "demo ['epochs=1', 'scale=cpu_hour']"
    assert isinstance(page, MarkdownPage)
    assert page._repr_markdown_() == page


def test_a_run_is_that_of_the_command_and_is_not_repeated(tmp_path):
    record = dpbench.run("optimizer.lr=0.3", results_dir=str(tmp_path), quiet=True, **SMALL)
    words = [f"{key}={value}" for key, value in SMALL.items()]
    path = load_or_run(run_config([*words, "optimizer.lr=0.3", f"results_dir={tmp_path}"]))
    assert load(path) == record
    assert len([*(tmp_path / "runs").iterdir()]) == 1


def test_settings_are_written_as_overrides_whatever_their_types():
    settings = {"seed": 3, "users": None, "method.bound": [1.0, 2], "name": "a b", "again": True}
    assert as_overrides(("epochs=1",), settings) == [
        "epochs=1",
        "seed=3",
        "users=null",
        "method.bound=[1.0,2]",
        "name='a b'",
        "again=true",
    ]
    with pytest.raises(UserError, match=r"^model=<object object at .* is not a number, text, list"):
        as_overrides((), {"model": object()})
    lr, seed, folder = np.float64(0.1), np.int64(1), Path("/some/where")
    settings = {"optimizer.lr": lr, "seed": seed, "results_dir": folder, "again": np.bool_(True)}
    assert as_overrides((), settings | {"model.widths": [seed], "method.a": {"b": lr}}) == [
        "optimizer.lr=0.1",
        "seed=1",
        "results_dir='/some/where'",
        "again=true",
        "model.widths=[1]",
        "method.a={b:0.1}",
    ]
    settings = {"dataset.drop": ("c",), "dataset.standardise": {"x": (0, 1)}}
    assert as_overrides((), settings) == ["dataset.drop=[c]", "dataset.standardise={x:[0,1]}"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: dpbench.reproduce(), "table= is unknown: choose from"),
        (lambda: dpbench.reproduce(table="dema"), "table=dema is unknown: did you mean demo?"),
        (lambda: dpbench.reproduce("demo", table={"seeds": [0]}), r"is set by the table: use tab"),
        (lambda: dpbench.frame(None), r"or a list of records and their paths, such as frame\(\["),
        (lambda: dpbench.frame(record()), r"or a list of records and their paths, such as frame"),
        (lambda: dpbench.audit(step=3), "step=3 is not a function: give one, or its name"),
        (lambda: dpbench.audit(step="nowhere:f"), "nowhere:f cannot be imported"),
        (lambda: dpbench.audit(step=len, examples=3), "examples=3 is not a function"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_sentence(call, why):
    with pytest.raises(UserError, match=why):
        call()


@pytest.mark.parametrize("call", [dpbench.run, functools.partial(dpbench.reproduce, "demo")])
def test_a_mapping_in_place_of_settings_is_refused(call):
    with pytest.raises(UserError, match=r"^{'epochs': 1} is not text: .* run\(epochs=1\), or for"):
        call({"epochs": 1})


def test_refusals_are_one_sentence():
    with pytest.raises(UserError, match="epoch is not a setting: did you mean epochs"):
        dpbench.run(epoch=3)
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        dpbench.__getattr__("rum")


@pytest.fixture
def results(tmp_path):
    """A results folder with two records, and a file that is none."""
    for seed in (0, 1):
        dpbench.run(results_dir=str(tmp_path), seed=seed, quiet=True, **SMALL)
    (tmp_path / "runs" / "0123456789abcdef.json").write_text("{")
    return tmp_path


@pytest.mark.slow
def test_a_frame_leaves_out_what_is_no_record_and_names_it(results):
    paths = sorted((results / "runs").glob("*.json"))
    for source in (results, str(results), paths, map(str, paths), map(read, paths)):
        with pytest.warns(UserWarning, match=r"0123456789abcdef\.json is not JSON.*left out\.$"):
            runs = dpbench.frame(source)
        assert sorted(runs["seed"]) == [0, 1]
        assert "test/accuracy" in runs


def test_a_frame_of_records_is_complete(results):
    records = [record for path in (results / "runs").iterdir() if (record := load(path))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(dpbench.frame(records)) == 2
    with pytest.raises(UserError, match="load returns None for a file that is not a record"):
        dpbench.frame([*records, None])
    with pytest.raises(UserError, match="nowhere is not a folder"):
        dpbench.frame(results / "nowhere")
    (results / "empty").mkdir()
    with pytest.raises(UserError, match=r"there is no record in .*empty: make one with dpbench"):
        dpbench.frame(results / "empty")
    with pytest.raises(UserError, match=f"is inside a results folder: name {results} instead"):
        dpbench.frame(results / "runs")
    with pytest.warns(UserWarning, match="x is damaged: it is left out"):
        assert len(dpbench.frame([*records, Unreadable("x", "is damaged")])) == 2
