"""What is said of runs that did not go well, where a reader sees it."""

import json
import math
import shlex
from pathlib import Path

import pytest

from dpbench.cli.main import main
from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.figure import remarks
from dpbench.comparison.tables.runs import Row
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Data, Split

WILD = ["model=logistic", "method.bound=1e3", "optimizer.lr=1e38", "epochs=3"]
LEFT_OUT = "gradients were not finite and counted as zero (exact, not covered)"
TAME = ["model=logistic", "method=sgd", "optimizer.lr=0.1", "epochs=1"]


@pytest.fixture
def said(monkeypatch, capsys, tmp_path):
    """said(...): what `dpbench run` writes into the test's own folder, to stdout and stderr."""

    def run(*overrides):
        words = ["dpbench", "run", *overrides, f"results_dir={tmp_path}"]
        monkeypatch.setattr("sys.argv", words)
        main()
        out, err = capsys.readouterr()
        return out.splitlines(), err.splitlines()

    return run


@pytest.fixture
def some_broken(monkeypatch):
    """Digits of which every tenth training example is not finite."""
    load = Digits.load

    def broken(self, folder, seed):
        data = load(self, folder, seed)
        inputs = data.train.inputs.clone()
        inputs[::10] = math.nan
        return Data(Split(inputs, data.train.targets, data.train.groups), data.test)

    monkeypatch.setattr(Digits, "load", broken)


@pytest.mark.slow
def test_divergence_is_reported_each_time_a_run_is_requested(said, tmp_path):
    for _ in range(2):
        (path,), err = said(*WILD)
        assert err[0] == (
            f"dpbench: the run of {path} diverged (it ended after epoch 1 of 3): its metrics are "
            "NaN."
        )


@pytest.mark.slow
def test_a_run_that_goes_well_says_only_what_came_of_it(said):
    (line,) = said(*TAME)[1]
    assert line.startswith("dpbench: test accuracy ")


def test_gradients_left_out_are_counted(said, some_broken):
    (path,), (_, line) = said(*TAME)
    count, rest = line.removeprefix("dpbench: ").split(" ", 1)
    (counted,) = json.loads(Path(path).read_text())["history"]["train/not_finite"]
    assert int(count) == counted > 100
    assert rest == f"{LEFT_OUT} in the run of {path}."


@pytest.mark.slow
def test_a_sweep_ends_with_what_diverged(said):
    out, err = said("-m", *WILD[:2], "epochs=1", "optimizer.lr=1e-4,1e38", "seed=0,1")
    assert len(out) == 4
    head, first, second, *_ = err
    assert head == "dpbench: 2 of 4 runs diverged: their metrics are NaN:"
    for line, seed in ((first, 0), (second, 1)):
        assert {"optimizer.lr=1e+38", f"seed={seed}"} < set(shlex.split(line))


def test_a_sweep_ends_with_what_was_left_out(said, some_broken):
    _, (head, line, _) = said("-m", *TAME, "seed=0")
    assert head == f"dpbench: in 1 of 1 runs {LEFT_OUT}:"
    assert "seed=0" in line


@pytest.mark.slow
def test_a_table_counts_what_was_left_out(some_broken, tmp_path):
    few = ["epochs=1", "table.methods=[sgd]", "table.seeds=[0]", f"results_dir={tmp_path}"]
    assert f"- sgd: {LEFT_OUT}, 1" in reproduce("demo", few)


def test_a_figure_names_what_diverged_and_what_was_left_out():
    runs = [{"seed": 4, "status": status, "nonfinite": 7} for status in ("diverged", "complete")]
    first, second = (Row("", "dpsgd", "corrected", [run]) for run in runs)
    assert remarks([first])[0] == "dpsgd diverged with seed 4."
    (only,) = remarks([second])
    assert only == f"dpsgd: {LEFT_OUT}, 7 with seed 4."
