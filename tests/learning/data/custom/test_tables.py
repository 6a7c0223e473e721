"""A table of the user's own: what is public of it, and how it is encoded."""

import hashlib
import json
import shlex

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench.cli.commands import run
from dpbench.comparison.verify.command import verify
from dpbench.comparison.verify.records import contradictions
from dpbench.runs.config.compose import compose
from dpbench.runs.config.settings import SCIENTIFIC
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.rerun import CommandBuilder
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest, scientific
from dpbench.runs.records.reading import read
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import data_of, settings


def test_the_configuration_has_public_values_and_no_path(people):
    config = compose(settings(people, "dataset.group=sex"))
    assert config["choices"]["dataset"] == "csv:people_of"
    part = scientific(config)["dataset"]
    assert "file" not in part
    assert {key: part[key] for key in ("rows", "features", "classes", "groups", "checksum")} == {
        "rows": 60,
        "features": 2 + 3 + 2,
        "classes": 2,
        "groups": ["f", "m"],
        "checksum": f"sha256:{hashlib.sha256(people.read_bytes()).hexdigest()}",
    }


def test_features_are_numbers_by_statistics_of_the_training_rows_then_categories(people):
    dataset, data = data_of(people, "dataset.group=sex")
    assert data.train.inputs.shape == (dataset.train_size, 7) == (48, *dataset.shape)
    assert len(data.test) == 12
    torch.testing.assert_close(data.train.inputs[:, :2].mean(0), torch.zeros(2))
    torch.testing.assert_close(data.train.inputs[:, :2].std(0), torch.ones(2))
    frame = pd.read_csv(people)
    every = torch.cat([data.train.inputs, data.test.inputs])
    assert every[:, 2:].sum(0).tolist() == [
        *(float((frame["town"] == town).sum()) for town in ("Bonn", "Rome", "York")),
        *(float((frame["sex"] == sex).sum()) for sex in ("f", "m")),
    ]
    assert torch.equal(data.train.groups, data.train.inputs[:, 6].long())


def test_each_row_keeps_its_target(people):
    _, data = data_of(people, "dataset.standardise=none")
    for split in (data.train, data.test):
        assert torch.equal(split.targets, (split.inputs[:, 1] > 50).long())


def test_the_split_is_fixed_unless_it_is_that_of_the_seed(people):
    for more, same in (([], True), (["dataset.split_seed=null"], False)):
        splits = [data_of(people, *more, seed=seed)[1].test.inputs for seed in (0, 1)]
        assert torch.equal(*splits) == same


def test_public_constants_need_no_statistics(people):
    constants = ["dataset.standardise={age:[40,20]}"]
    dataset, data = data_of(people, *constants)
    _, plain = data_of(people, "dataset.standardise=none")
    torch.testing.assert_close(data.train.inputs[:, 0], (plain.train.inputs[:, 0] - 40) / 20)
    assert torch.equal(data.train.inputs[:, 1], plain.train.inputs[:, 1])
    assert not any("epsilon" in note for note in dataset.notes)
    assert "training rows, which no epsilon covers" in data_of(people)[0].notes[-1]
    assert "the classes and the groups are taken to be public" in dataset.notes[0]


def test_numbers_can_be_categories_and_columns_dropped(people):
    frame = pd.read_csv(people)
    dataset, _ = data_of(people, "dataset.categorical=[age]", "dataset.drop=[town,wage,sex]")
    assert dataset.shape == (frame["age"].nunique(),)


def test_regression_has_numbers_as_targets(people):
    more = ["dataset.task=regression", "dataset.target=wage", "dataset.drop=[rich]"]
    dataset, data = data_of(people, *more)
    assert (dataset.task, dataset.classes, data.train.targets.dtype) == (
        "regression",
        1,
        torch.float32,
    )


@pytest.mark.parametrize(
    ("standardise", "mean", "deviation"),
    [("none", 0.0, 1.0), ("{wage:[2000,500]}", 2000.0, 500.0), ("{age:[40,15]}", 0.0, 1.0)],
)
def test_a_target_of_regression_is_scaled_by_constants(people, standardise, mean, deviation):
    more = ["dataset.task=regression", "dataset.target=wage", "dataset.drop=[rich]"]
    _, data = data_of(people, *more, f"dataset.standardise={standardise}")
    scaled = (pd.read_csv(people)["wage"] - mean) / deviation
    assert data.target_unit == deviation
    assert sorted(data.train.targets.tolist() + data.test.targets.tolist()) == pytest.approx(
        sorted(scaled), rel=1e-6
    )


def test_a_target_of_regression_has_the_z_scores_of_training_rows(people):
    more = ["dataset.task=regression", "dataset.target=wage", "dataset.drop=[rich]"]
    dataset, data = data_of(people, *more)
    assert data.train.targets.mean().item() == pytest.approx(0, abs=1e-6)
    assert data.train.targets.std().item() == pytest.approx(1)
    assert "z-scores of the features and the target" in dataset.notes[-1]


def test_a_changed_file_is_another_run_and_a_moved_one_is_not(people, tmp_path):
    before = digest(compose(settings(people)))
    (tmp_path / "elsewhere").mkdir()
    moved = people.rename(tmp_path / "elsewhere" / people.name)
    assert digest(compose(settings(moved))) == before
    moved.write_text(moved.read_text().replace("Bonn", "Kiel"))
    assert digest(compose(settings(moved))) != before


def test_a_file_that_changes_before_it_is_read_is_refused(people):
    run = run_of(run_config(settings(people)))
    people.write_text(people.read_text().replace("Bonn", "Kiel"))
    with pytest.raises(UserError, match=r"give the original data, or leave out dataset.checksum"):
        run.dataset.load(people.parent, 0)


def test_a_group_without_test_examples_has_a_warning_and_no_numbers(people, tmp_path):
    people.write_text(people.read_text() + "30,60,Bonn,x,yes\n")
    asked = settings(people, "dataset.group=sex", "dataset.drop=[sex]")
    assert 2 in data_of(people, *asked[3:])[1].train.groups
    small = ["model=logistic", "epochs=1", "batch_size=16", f"results_dir={tmp_path}"]
    with pytest.warns(UserWarning, match="^no test example is in group x: its accuracy and all ga"):
        record = read(load_or_run(run_config([*asked, *small])))
    assert np.isnan([record.metrics[f"test/accuracy{name}"] for name in ("/x", "_gap")]).all()


@pytest.mark.slow
def test_a_record_has_its_command_and_is_verified_without_the_file(people, tmp_path, capsys):
    small = ["model=logistic", "epochs=1", "batch_size=16", f"results_dir={tmp_path}"]
    record = read(load_or_run(run_config(settings(people, "dataset.group=sex", *small))))
    assert "test/accuracy/f" in record.metrics
    of_record = f"record={tmp_path / 'runs' / record.digest}.json"
    with pytest.raises(UserError, match=r"as no record has .*: give dataset\.file=PATH\.$"):
        run([of_record, f"results_dir={tmp_path / 'other'}"])
    people.unlink()
    assert [line for line in contradictions(record) if "uncommitted" not in line] == []
    words = shlex.split(CommandBuilder()(record.config))[2:]
    assert digest(compose(words)) == record.digest
    assert str(people) not in json.dumps(record.config)
    assert {*record.config} == {*SCIENTIFIC, "choices"}
    said, problems = verify([f"results_dir={tmp_path}", "rerun=1"])
    assert "and trained 0 again" in said
    assert not [found for found in problems if "retrained" in found.description]
    assert "records do not have the path of your own data" in capsys.readouterr().err


def test_a_number_names_the_column_of_that_name(people):
    frame = pd.read_csv(people).rename(columns={"rich": "3", "town": "2020", "age": "1"})
    frame.to_csv(people, index=False)
    numbers = ["dataset.target=3", "dataset.group=2020", "dataset.drop=[1]"]
    texts = ['dataset.target="3"', 'dataset.group="2020"', "dataset.drop=['1']"]
    config = compose(settings(people, *numbers))
    assert config["dataset"]["target"] == "3"
    assert digest(config) == digest(compose(settings(people, *texts)))
    constants = compose(settings(people, "dataset.target=3", "dataset.standardise={1:[40,20]}"))
    assert constants["dataset"]["standardise"] == {"1": [40, 20]}
