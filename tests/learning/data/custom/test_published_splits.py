"""Test rows of the publisher's own: a second file, folders, parts of what `datasets` loads."""

import shutil

import pandas as pd
import pytest
import torch

from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import scientific
from dpbench.runs.records.reading import read
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import settings


@pytest.fixture
def halves(people, tmp_path):
    """Two CSV files: the first fifty people, and the last ten with their columns reversed."""
    frame = pd.read_csv(people)
    frame[:50].to_csv(tmp_path / "first.csv", index=False)
    frame[frame.columns[::-1]][50:].to_csv(tmp_path / "last.csv", index=False)
    return tmp_path / "first.csv", tmp_path / "last.csv", frame


def of_parts(path, *more):
    return ["dataset=hub", f"dataset.path={path}", "dataset.target=rich", *more]


def loaded(words, seed=3):
    run = run_of(run_config(words))
    return run.dataset, run.dataset.load("unread", seed)


def test_rows_of_a_test_file_are_tested_on_and_no_others(halves):
    first, last, frame = halves
    dataset, data = loaded(settings(first, f"dataset.test_file={last}", "dataset.standardise=none"))
    assert (dataset.train_size, len(data.train), len(data.test)) == (50, 50, 10)
    assert data.train.inputs[:, 0].tolist() == frame["age"][:50].tolist()
    assert data.test.inputs[:, 0].tolist() == frame["age"][50:].tolist()


def test_a_run_is_named_by_both_files(halves):
    first, last, _ = halves
    part = scientific(compose(settings(first, f"dataset.test_file={last}")))["dataset"]
    assert "test_file" not in part
    assert part["test_rows"] == 10
    assert part["test_checksum"] != part["checksum"]
    wrong = [f"dataset.test_file={last}", "dataset.test_checksum=sha256:0"]
    with pytest.raises(UserError, match=r"last.csv has the checksum .* dataset.test_checksum is"):
        compose(settings(first, *wrong))


def test_a_test_file_of_the_training_rows_is_refused(halves):
    first, last, _ = halves
    last.write_bytes(first.read_bytes())
    with pytest.raises(UserError, match=r"last\.csv has the rows that are trained on: give a file"):
        compose(settings(first, f"dataset.test_file={last}"))


def test_a_class_that_only_test_rows_have_is_warned_of(halves):
    first, last, frame = halves
    frame[50:].assign(rich=["very", *["yes", "no", "very"] * 3]).to_csv(last, index=False)
    with pytest.warns(UserWarning, match="^no training row has the class very of column rich, whi"):
        loaded(settings(first, f"dataset.test_file={last}"))


SPELT_OTHERWISE = {
    "full stops": (("<=50K", ">50K"), ("<=50K.", ">50K."), "'<=50K', '>50K'", "'<=50K.', '>50K.'"),
    "one full stop": (("no", "yes"), ("no", "yes."), "'yes'", "'yes.'"),
    "case": (("no", "yes"), ("No", "YES"), "'no', 'yes'", "'No', 'YES'"),
    "spaces": (("no", "yes"), ("no ", "yes"), "'no'", "'no '"),
    "quotes": (("no", "yes"), ("'no'", "yes"), "'no'", "\"'no'\""),
    "numbers from 1": ((0, 1), (1, 2), "0", "2"),
    "numbers of both signs": ((0, 1), (-1, 1), "0", "-1"),
    "numbers for words": (("no", "yes"), (0, 1), "'no', 'yes'", "'0', '1'"),
    "another word": (("no", "yes"), ("no", "oui"), "'yes'", "'oui'"),
}


@pytest.mark.parametrize(
    ("trained", "tested", "ours", "theirs"), SPELT_OTHERWISE.values(), ids=SPELT_OTHERWISE
)
def test_classes_that_test_rows_spell_otherwise_are_refused(halves, trained, tested, ours, theirs):
    first, last, frame = halves
    for path, part, labels in ((first, frame[:50], trained), (last, frame[50:], tested)):
        names = dict(zip(("no", "yes"), labels, strict=True))
        part.assign(rich=part["rich"].map(names)).to_csv(path, index=False)
    with pytest.raises(UserError) as told:
        compose(settings(first, f"dataset.test_file={last}"))
    said = str(told.value)
    assert f"last.csv has {theirs} in column rich, which no training row has, and" in said
    assert said.endswith(f"training rows have {ours}: write the same classes in both.")


def test_ten_digits_from_0_and_from_1_are_refused(halves):
    first, last, frame = halves
    frame[:50].assign(rich=[*range(10)] * 5).to_csv(first, index=False)
    frame[50:].assign(rich=[*range(1, 11)]).to_csv(last, index=False)
    with pytest.raises(UserError, match=r"has 10 in column rich, .* training rows have 0: write"):
        compose(settings(first, f"dataset.test_file={last}"))
    frame[50:].assign(rich=[*range(8), 8, 10]).to_csv(last, index=False)
    with pytest.warns(UserWarning, match="hardly any rows: 10 "):
        compose(settings(first, f"dataset.test_file={last}"))


def test_groups_that_test_rows_spell_otherwise_are_refused_and_other_groups_are_not(halves):
    first, last, frame = halves
    words = settings(first, f"dataset.test_file={last}", "dataset.group=sex")
    frame[50:].assign(sex=frame["sex"].str.upper()).to_csv(last, index=False)
    with pytest.raises(
        UserError, match=r"has 'F', 'M' in column sex, .*'f', 'm': write the same gr"
    ):
        compose(words)
    frame[50:].assign(sex="x").to_csv(last, index=False)
    assert compose(words)["dataset"]["groups"] == ["f", "m", "x"]


@pytest.mark.data
def test_income_in_the_original_files_of_adult_is_refused(data_folder, tmp_path):
    """The labels of its test file end in full stops."""
    from dpbench.learning.data.adult import COLUMNS

    for name in ("adult.data", "adult.test"):
        lines = (data_folder / "adult" / name).read_text().splitlines()
        complete = [line for line in lines if line.count(",") == 14 and "?" not in line]
        (tmp_path / name).write_text("\n".join([",".join(COLUMNS), *complete[:500]]))
    test = f"dataset.test_file={tmp_path / 'adult.test'}"
    with pytest.raises(UserError, match=r"adult.test has '<=50K.', '>50K.' in .*'<=50K', '>50K'"):
        compose(settings(tmp_path / "adult.data", test, "dataset.target=income"))
    (tmp_path / "adult.test").write_bytes((data_folder / "adult" / "adult.test").read_bytes())
    with pytest.raises(
        UserError, match=r"^dataset\.test_file=.*than the first line, which has to ha"
    ):
        compose(settings(tmp_path / "adult.data", test, "dataset.target=income"))


def test_a_category_that_only_test_rows_have_is_warned_of(halves):
    first, last, frame = halves
    frame[50:].assign(town="Oslo").to_csv(last, index=False)
    with pytest.warns(UserWarning, match="^no training row has the category Oslo of column town, "):
        loaded(settings(first, f"dataset.test_file={last}"))


def test_a_far_value_of_a_test_row_is_named_by_its_row_in_its_file(halves):
    first, last, frame = halves
    frame[50:].assign(age=[40.0] * 3 + [1e9] * 7).to_csv(last, index=False)
    says = r"age has 1e\+09 in row 4 of the test rows and 6 others, farther from the training rows'"
    with pytest.warns(UserWarning, match=says):
        loaded(settings(first, f"dataset.test_file={last}"))


def test_a_column_that_is_text_in_one_file_alone_is_text_in_both(halves):
    first, last, frame = halves
    frame[:50].assign(code=["01", "02"] * 25).to_csv(first, index=False)
    frame[50:].assign(code=["01", "2A"] * 5).to_csv(last, index=False)
    words = settings(first, f"dataset.test_file={last}", "dataset.categorical=[code]")
    with pytest.warns(UserWarning, match="has the category 2A of column code, which test rows"):
        dataset, data = loaded(words)
    assert dataset.preparation(0).categories["code"] == ("01", "02", "2A")
    assert torch.equal(data.test.inputs[:, -3:], torch.eye(3)[[0, 2] * 5])


@pytest.mark.parametrize(("text", "what"), [("", "no usable value"), ("x", "numbers, but 'x'")])
def test_a_row_of_a_test_file_is_named_as_that_file_counts_it(halves, text, what):
    first, last, frame = halves
    frame[50:].assign(age=["30", text, *["40"] * 8]).to_csv(last, index=False)
    with pytest.raises(UserError, match=rf"{what} .*row 2 of dataset\.test_file=.*last\.csv"):
        compose(settings(first, f"dataset.test_file={last}"))


def test_a_test_file_without_rows_is_refused(halves):
    first, last, frame = halves
    frame[:0].to_csv(last, index=False)
    with pytest.raises(UserError, match=r"test_file=.*last\.csv has no rows\.$"):
        compose(settings(first, f"dataset.test_file={last}"))


def test_a_test_file_with_other_columns_is_refused(halves):
    first, last, frame = halves
    frame.drop(columns="wage").to_csv(last, index=False)
    with pytest.raises(UserError, match="same columns, but only one of them has 'wage'"):
        compose(settings(first, f"dataset.test_file={last}"))


def test_older_settings_have_none_of_these_keys(people):
    part = scientific(compose(settings(people)))["dataset"]
    assert part.keys().isdisjoint(
        {"test_file", "test_checksum", "test_rows", "missing", "text", "quotes", "large"}
    )


@pytest.mark.slow
def test_folders_train_and_test_are_the_split(pets, tmp_path):
    for part, numbers in (("train", range(15)), ("test", range(15, 20))):
        for name in ("cat", "dog"):
            (tmp_path / "split" / part / name).mkdir(parents=True)
            for number in numbers:
                file = f"{name}/{number}.png"
                (pets / file).rename(tmp_path / "split" / part / file)
    words = ["dataset=images", f"dataset.folder={tmp_path / 'split'}", "dataset.size=8"]
    dataset, data = loaded(words)
    assert (dataset.classes, dataset.groups, dataset.train_size) == (2, ("cat", "dog"), 30)
    assert data.test.targets.tolist() == [0] * 5 + [1] * 5
    small = ["model=logistic", "epochs=1", "batch_size=8", f"results_dir={tmp_path}"]
    assert (
        "test/accuracy/dog" in read(load_or_run(run_config([*words, *small]), quiet=True)).metrics
    )
    (tmp_path / "split" / "test" / "cow").mkdir()
    with pytest.raises(UserError, match=r"same class folders in train and test, .* has cow"):
        compose(words)


def test_one_folder_of_images_twice_is_no_split(pets, tmp_path):
    for part in ("train", "test"):
        shutil.copytree(pets, tmp_path / "split" / part)
    words = ["dataset=images", f"dataset.folder={tmp_path / 'split'}", "dataset.size=8"]
    with pytest.raises(UserError, match="has the same images in train and test: give the path of"):
        compose(words)
    (tmp_path / "split" / "test" / "cat" / "0.png").unlink()
    with pytest.warns(UserWarning, match="are one image in two classes, or in training and test"):
        compose(words)


@pytest.mark.slow
def test_what_save_to_disk_has_written_is_loaded_with_its_test_part(halves, no_cache, tmp_path):
    import datasets

    first, last, frame = halves
    columns = list(frame.columns)
    parts = {"train": pd.read_csv(first), "test": pd.read_csv(last)[columns]}
    tables = {name: datasets.Dataset.from_pandas(part) for name, part in parts.items()}
    datasets.DatasetDict(tables).save_to_disk(tmp_path / "saved")
    words = of_parts(tmp_path / "saved", "dataset.standardise=none")
    dataset, data = loaded([*words, "dataset.test_part=test"])
    assert (dataset.train_size, len(data.test)) == (50, 10)
    assert data.test.inputs[:, 0].tolist() == frame["age"][50:].tolist()
    with pytest.warns(UserWarning, match="a part of its own to test on, which is not used: set"):
        dataset, data = loaded(words)
    assert (dataset.train_size, len(data.test)) == (40, 10)
    with pytest.raises(UserError, match=r"dataset\.part=dev: it has the parts train, test"):
        compose([*words, "dataset.part=dev"])
    with pytest.raises(UserError, match="test_part=train has the rows that are trained on: name"):
        compose([*words, "dataset.test_part=train"])
    tables["train"].save_to_disk(tmp_path / "whole")
    assert loaded(of_parts(tmp_path / "whole"))[0].rows == 50


@pytest.mark.slow
def test_the_test_part_of_a_folder_of_files_is_not_ignored_in_silence(halves, no_cache, tmp_path):
    first, _, frame = halves
    (tmp_path / "two").mkdir()
    first.rename(tmp_path / "two" / "train.csv")
    frame[50:].to_csv(tmp_path / "two" / "test.csv", index=False)
    with pytest.warns(UserWarning, match="set dataset.test_part=test"):
        assert loaded(of_parts(tmp_path / "two"))[0].rows == 50
    words = of_parts(tmp_path / "two", "dataset.test_part=test", "dataset.standardise=none")
    dataset, data = loaded(words)
    assert (dataset.rows, dataset.train_size) == (60, 50)
    assert torch.equal(data.test.inputs[:, 0], torch.tensor(frame["age"][50:].to_numpy()).float())
