"""A released folder predicts alone, as the run's own model does, and says what epsilon covers."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench import load_model, load_preparation, model_file
from dpbench.runs.execution import release as execution
from dpbench.runs.execution.predict import predict
from dpbench.runs.execution.release import release
from dpbench.runs.records.reading import read
from dpbench.system.errors import UserError
from tests.alone import printed_alone

# What tables are warned of has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

PUBLIC = ("dataset.bounds={age: [0, 100], pay: [0, 9]}", "dataset.categories={town: [a, b, 3]}")
SMALL = ("epochs=2", "batch_size=64", "privacy.delta=1e-4")


@pytest.fixture
def people(tmp_path):
    """A CSV file with numbers, some of them out of bounds, and a category that is not listed."""
    draws, rows = np.random.default_rng(0), 300
    frame = pd.DataFrame(
        {
            "age": draws.integers(-5, 120, rows),
            "pay": draws.normal(5, 3, rows).round(2),
            "town": draws.choice(["a", "b", "3", "elsewhere"], rows),
            "person": np.arange(rows) // 2,
            "y": draws.choice(["no", "yes"], rows),
        }
    )
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


@pytest.fixture
def released(people, tmp_path):
    """released(*overrides): the folder, and the record of its run."""

    def make(*overrides, target="y"):
        results = tmp_path / "results"
        words = [f"dataset.file={people}", f"dataset.target={target}", *SMALL, *overrides]
        out = release([*words, f"results_dir={results}", f"out={tmp_path / 'out'}"])
        (path,) = (results / "runs").glob("*.json")
        return out, read(path)

    return make


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["y", "pay"])
def test_the_folder_predicts_what_the_run_s_own_model_does(released, people, tmp_path, target):
    task = ["dataset.drop=[person]"]
    if target == "pay":
        task = ["dataset.drop=[person,y]", "dataset.task=regression", "model=regression_mlp"]
    out, record = released(*PUBLIC, *task, target=target)
    file = model_file(record, tmp_path / "results")
    prepare = load_preparation(file.with_suffix(".preparation.json"))
    with torch.no_grad():
        outputs = load_model(file)(prepare(pd.read_csv(people)))
    if target == "pay":
        assert predict(rows_of(people), out) == pytest.approx(prepare.predictions(outputs).tolist())
    else:
        expected = [prepare.classes[place] for place in outputs.argmax(1)]
        assert predict(rows_of(people), out) == expected
        assert {*expected} <= {"no", "yes"}  # secure noise: of random labels, perhaps one alone


@pytest.mark.slow
def test_the_folder_says_what_epsilon_covers_and_has_no_exact_number(released):
    person = ["users=column", "users.column=person", "users.most=2"]
    out, record = released("privacy.epsilon=2", *person, *PUBLIC)
    page = (out / "PRIVACY.md").read_text()
    assert "**Epsilon 2.00 at delta 0.0001** (PLD" in page
    assert "one user with all of its rows, added or removed" in page
    assert "Poisson batches" in page
    assert "k rows of one person" not in page
    assert {path.name for path in out.iterdir()} == {
        *("PRIVACY.md", "predict.py", "model.pt2", "preparation.json", "privacy.json")
    }
    texts = "".join(path.read_text() for path in out.iterdir() if path.suffix != ".pt2")
    for name in ("test/accuracy", "test/loss"):
        assert name not in texts
        assert f"{record.metrics[name]:.4f}" not in texts
    assert record.config["dataset"]["checksum"] not in texts
    assert json.loads((out / "privacy.json").read_text())["noise_multiplier"] > 0
    numbers = json.loads((out / "preparation.json").read_text())["numbers"]
    assert numbers == {"age": [50.0, 50.0], "pay": [4.5, 4.5]}  # the bounds, and nothing measured


@pytest.mark.slow
def test_a_test_number_is_stated_if_asked_for(released):
    out, record = released("dataset.drop=[person]", *PUBLIC, "test=true")
    page = (out / "PRIVACY.md").read_text()
    assert f"test/accuracy is {record.metrics['test/accuracy']:.4f}: exact" in page
    assert "k rows of one person have about k times the epsilon" in page


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([PUBLIC[1]], r"age, pay, person: .* as in 'dataset.bounds=\{age: \[0, 100\]\}'"),
        (["dataset.drop=[person]", PUBLIC[0]], r"^what .* town: its categories would be those"),
        (
            [*PUBLIC, "dataset.drop=[person]", "normalization=private_columns"],
            "^what .* normalization",
        ),
        ([*PUBLIC, "users=column", "users.column=person"], "^what .* users.most: without it, the"),
        (["launcher=slurm"], "launcher=slurm launches the runs of a sweep"),
        (["noise=seeded"], "noise=seeded is refused: a release has noise=secure"),
        ([*PUBLIC, "dataset.drop=[person]", "method=sgd"], "has no proven epsilon"),
    ],
)
def test_what_no_epsilon_would_cover_is_refused_before_training(
    released, tmp_path, overrides, sentence
):
    with pytest.raises(UserError, match=sentence):
        released(*overrides)
    assert not (tmp_path / "results").exists()


def test_other_data_than_a_table_of_ones_own_are_refused(tmp_path):
    with pytest.raises(UserError, match="release takes a table of your own"):
        release(["dataset=digits", f"out={tmp_path / 'out'}"])


@pytest.mark.parametrize("derived", ["validation=0.2", "mislabelled=10"])
def test_a_part_of_a_table_is_named_and_refused(released, derived):
    with pytest.raises(UserError, match=f"leave out .*{derived.split('=')[0]}"):
        released(*PUBLIC, "dataset.drop=[person]", derived)


@pytest.mark.slow
def test_what_is_covered_is_not_under_what_is_not(released):
    out, _ = released(*PUBLIC, "dataset.drop=[person]", "class_count_noise_multiplier=20")
    uncovered, _, known = (out / "PRIVACY.md").read_text().partition("\nTo know:\n")
    assert "epsilon pays for it" in known
    assert "epsilon pays for it" not in uncovered


@pytest.mark.slow
def test_a_folder_that_comes_to_be_meanwhile_is_not_written_to(released, tmp_path, monkeypatch):
    def other(*arguments, write=execution._write):
        (tmp_path / "out/theirs").mkdir(parents=True)
        write(*arguments)

    monkeypatch.setattr(execution, "_write", other)
    with pytest.raises(UserError, match="out exists: name a new folder"):
        released(*PUBLIC, "dataset.drop=[person]")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theirs"]


@pytest.mark.parametrize("place", [Path.mkdir, lambda out: out.symlink_to("nowhere")])
def test_a_folder_that_is_there_is_not_written_to(released, tmp_path, place):
    place(tmp_path / "out")
    with pytest.raises(UserError, match="out exists: name a new folder"):
        released(*PUBLIC)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"town": "c"}, "'c' is not a category of town"),
        ({"age": ""}, "age has no value"),
        ({"age": "NA"}, "age has no value"),
        ({"age": "7,5"}, "'7,5' is not a number, which age has"),
    ],
)
def test_the_released_script_refuses_what_the_model_cannot_take(row, sentence):
    from dpbench.runs.execution import predict as script

    about = {"numbers": {"age": [50, 50]}, "categories": {"town": ["a"]}, "farthest": 1.0}
    about |= {
        "listed": [],
        "incomplete": [],
        "indicators": False,
        "missing_values": ["?"],
        "ranges": {},
    }
    assert script._features({"age": "75", "town": "a"}, about).tolist() == [[0.5, 1.0]]
    with pytest.raises(ValueError, match=sentence):
        script._features({"age": "75", "town": "a", **row}, about)
    with pytest.raises(ValueError, match="there is no column age"):
        script._features({"age;town": "75;a"}, about)


@pytest.mark.parametrize("absent", ["", " NA", "nan", "?", None, float("nan")])
def test_the_released_script_takes_as_no_number_what_the_table_did(absent):
    from dpbench.runs.execution import predict as script

    about = {"numbers": {"age": [50, 50]}, "categories": {"town": ["NA"]}, "farthest": 1.0}
    about |= {"listed": [], "incomplete": ["age"], "indicators": True, "missing_values": ["?"]}
    about |= {"ranges": {"age": [0, 150]}}
    assert script._features({"age": absent, "town": "NA"}, about).tolist() == [[0.5, 1.0, 1.0]]


@pytest.mark.long
def test_a_table_is_predicted_where_there_is_no_dpbench(released, people):
    out, _ = released("dataset.drop=[person]", *PUBLIC)
    assert printed_alone(out, people) == predict(rows_of(people), out)
