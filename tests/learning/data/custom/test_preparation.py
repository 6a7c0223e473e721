"""New rows of a table become the inputs that the model of a run was trained on."""

import json
import os

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench import load_model, load_preparation, model_file
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.system.errors import UserError

SMALL = ["model=logistic", "epochs=2", "batch_size=16", "privacy=eps8", "privacy.delta=1e-2"]


@pytest.fixture
def kept(people, tmp_path):
    """kept(*overrides): the record of a run, the path of its preparation, and its table."""

    def make(*overrides):
        words = ["dataset=csv", f"dataset.file={people}", "save_model=true", *SMALL, *overrides]
        path = load_or_run(run_config([*words, f"results_dir={tmp_path}"]), quiet=True)
        record = load(path)
        beside = model_file(record, tmp_path).with_suffix(".preparation.json")
        return record, beside, pd.read_csv(people)

    return make


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["dataset.standardise=none"],
        ["dataset.standardise={age:[40,15]}"],
        ["dataset.drop=[sex]"],
    ],
)
def test_predictions_on_raw_rows_are_as_right_as_the_run_was(kept, more):
    record, path, frame = kept("dataset.target=rich", "dataset.group=town", "seed=4", *more)
    prepare = load_preparation(path)
    model = load_model(path.with_name(path.name.replace(".preparation.json", ".pt")))
    assert prepare.classes == ("no", "yes")
    with torch.no_grad():
        chosen = model(prepare(frame)).argmax(1)
    right = np.array(prepare.classes)[chosen] == frame["rich"].to_numpy()
    counts = record.metrics["test/accuracy"] * 12 + record.metrics["train_set/accuracy"] * 48
    assert right.sum() == pytest.approx(counts)


def test_the_file_says_that_no_epsilon_covers_it_and_its_name_nothing_with_secure_noise(kept):
    record, path, _ = kept("dataset.target=rich", "noise=secure")
    told = json.loads(path.read_text())["privacy"]
    assert "exact, not covered: number of rows, classes and groups, categories, means" in told
    assert record.digest not in path.name


def test_a_preparation_is_kept_for_derived_data_sets_too(kept):
    _, path, frame = kept("dataset.target=rich", "validation=0.2", "mislabelled=10")
    assert load_preparation(path)(frame).shape == (60, 7)


def test_columns_may_be_in_another_order_and_more_of_them(kept):
    _, path, frame = kept("dataset.target=rich")
    prepare = load_preparation(path)
    other = frame[[*reversed(list(frame))]].assign(more=1)
    assert torch.equal(prepare(other), prepare(frame))
    assert prepare(frame.iloc[:1]).shape == (1, 7)


def test_a_regression_has_no_classes(kept):
    _, path, frame = kept("dataset.target=wage", "dataset.task=regression")
    assert load_preparation(path).classes == ()
    assert load_preparation(path)(frame.drop(columns="wage")).shape == (60, 8)


@pytest.mark.parametrize("standardise", ["train", "none", "{wage:[40,20]}"])
def test_metrics_and_predictions_of_a_regression_have_its_unit(kept, people, standardise):
    more = ["dataset.target=wage", "dataset.task=regression", "dataset.drop=[rich]", "seed=4"]
    record, path, frame = kept(*more, f"dataset.standardise={standardise}")
    prepare = load_preparation(path)
    model = load_model(path.with_name(path.name.replace(".preparation.json", ".pt")))
    with torch.no_grad():
        predicted = prepare.predictions(model(prepare(frame))).numpy()
    _, test = run_of(
        run_config(["dataset=csv", f"dataset.file={people}", *SMALL, *more])
    ).dataset.order(4)
    errors = (predicted - frame["wage"].to_numpy())[test]
    assert record.metrics["test/mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert record.metrics["test/mse"] == pytest.approx(np.square(errors).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame: frame.drop(columns="age"), "the table has no column age"),
        (lambda frame: frame.assign(town="Oslo"), "town has 'Oslo' in row 1, which is not a cat"),
        (lambda frame: frame.assign(age="old"), "age has 'old' in row 1, which is not a number"),
        (lambda frame: frame.assign(wage=np.inf), "wage has inf in row 1, which is not a number"),
    ],
)
def test_rows_that_the_model_does_not_know_are_one_sentence(kept, change, says):
    _, path, frame = kept("dataset.target=rich")
    with pytest.raises(UserError, match=says):
        load_preparation(path)(change(frame))


FIELDS = '"categories": {}, "classes": []'


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"numbers": {"a": 1}, "categories": {}}', "[" * 100_000),
        *(f'{{"numbers": {{"a": [{n}, 1]}}, {FIELDS}}}' for n in ("1" + "0" * 400, "NaN", "true")),
        f'{{"numbers": {{"a": [1, -1]}}, {FIELDS}}}',
        '{"numbers": {}, "categories": {"a": [[1]]}, "classes": []}',
        '{"numbers": {}, "categories": {}, "classes": ["a"], "target": [1]}',
    ],
    ids=range(11),
)
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match="is not the preparation of a table"):
        load_preparation(path)
    with pytest.raises(UserError, match="is not the preparation of a table"):
        load_preparation(tmp_path / "none")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_regular_files_are_opened(make, tmp_path):
    make(tmp_path / "x.json")
    with pytest.raises(UserError, match="is not the preparation of a table"):
        load_preparation(tmp_path / "x.json")


def test_an_earlier_preparation_is_removed_with_its_model(kept):
    _, path, _ = kept("dataset.target=rich")
    assert json.loads(path.read_text())["numbers"]
    kept("dataset.target=rich", "save_model=false", "again=true")
    assert not path.exists()


def constant_but_for(frame, rows, normal=0.1):
    """The frame with a column that has one value, except in these rows: by row, theirs."""
    values = np.full(len(frame), normal)
    values[[*rows]] = [*rows.values()]
    return frame.assign(unit=values)


@pytest.mark.parametrize("normal", [0.1, 0.0, 3.0, -1e-9])
def test_columns_constant_in_training_are_0_everywhere(kept, people, normal):
    """0.2 in a test row became 7e15 where all training rows have 0.1, and the loss 1e14."""
    frame = pd.read_csv(people)
    asked = ["dataset=csv", f"dataset.file={people}", "dataset.target=rich", *SMALL]
    test_row = int(run_of(run_config(asked)).dataset.order(0)[1][0])
    constant_but_for(frame, {test_row: normal + 0.1}, normal).to_csv(people, index=False)
    says = f"column unit has .* in row {test_row + 1}, farther from the .*: taken as {normal:g}"
    with pytest.warns(UserWarning, match=says):
        record, path, frame = kept("dataset.target=rich")
    assert record.metrics["test/loss"] < 10
    prepare = load_preparation(path)
    assert prepare.numbers["unit"][1] == 0
    with pytest.warns(UserWarning, match=says):
        assert (prepare(frame)[:, 2] == 0).all()


def test_a_value_farther_than_any_training_row_can_be_is_taken_as_the_nearest(kept):
    _, path, frame = kept("dataset.target=rich")
    prepare = load_preparation(path)
    far = frame.assign(age=frame["age"].astype("float64"))
    far.loc[[3, 5, 7], "age"] = [1e30, -1e12, 120.0]
    with pytest.warns(UserWarning, match=r"age has 1e\+30 in row 4 and 1 other, farther from"):
        ages = prepare(far)[:, 0]
    assert ages[[3, 5]].tolist() == pytest.approx([48**0.5, -(48**0.5)])
    mean, deviation = prepare.numbers["age"]
    assert ages[7].item() == pytest.approx((120 - mean) / deviation)
    assert torch.equal(prepare(frame), prepare(far.assign(age=frame["age"])))


def test_no_training_row_is_ever_changed_however_far_it_is(people):
    """Of n rows of which one differs, that one is (n - 1)/sqrt(n) deviations away, the most."""
    asked = ["dataset=csv", f"dataset.file={people}", "dataset.target=rich"]
    train = run_of(run_config(asked)).dataset.order(0)[0]
    frame = pd.read_csv(people)
    for value in (1e-9, 1.0, 1e30):
        constant_but_for(frame, {train[0]: value}, 0.0).to_csv(people, index=False)
        data = run_of(run_config(asked)).dataset.load(people, 0)
        assert data.train.inputs[0, 2].item() == pytest.approx(47 / 48**0.5)


@pytest.mark.parametrize("standardise", ["none", "{age:[40,15]}"])
def test_without_statistics_of_training_rows_nothing_is_far(kept, standardise):
    _, path, frame = kept("dataset.target=rich", f"dataset.standardise={standardise}")
    far = frame.assign(age=1e9, wage=1e9)
    expected = (1e9 - 40) / 15 if "age" in standardise else 1e9
    assert load_preparation(path)(far)[0, :2].tolist() == pytest.approx([expected, 1e9])


def test_a_preparation_of_an_earlier_release_prepares_as_it_did(kept):
    _, path, frame = kept("dataset.target=rich")
    now, old = load_preparation(path)(frame), json.loads(path.read_text())
    del old["farthest"]
    path.write_text(json.dumps(old))
    assert torch.equal(load_preparation(path)(frame), now)
