"""How a file is written: without names of columns, in an older encoding, with marks of no value."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench import load_preparation
from dpbench.learning.data.custom.csv_files import is_row
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import data_of, settings

NUMBERS = np.arange(30) / 7


@pytest.mark.parametrize(
    ("names", "columns", "expected"),
    [
        (["2.5", "M"], {"a": NUMBERS, "b": ["F", "M"] * 15}, True),
        (["2.5", "1"], {"a": NUMBERS, "b": [0, 1] * 15}, True),
        (["p", "x"], {"a": ["p", "e"] * 15, "b": ["x", "s", "y"] * 10}, True),
        (["Fine film", "1"], {"a": [f"Text {i}" for i in range(30)], "b": [0, 1] * 15}, True),
        (["age", "1"], {"a": NUMBERS, "b": [0, 1] * 15}, False),
        (["sex", "M"], {"a": ["F", "M"] * 15, "b": ["F", "M"] * 15}, False),
        (["0", "1", "2"], {"a": NUMBERS, "b": NUMBERS, "c": NUMBERS}, False),
        (["1990", "2000", "2010"], {"a": NUMBERS * 900, "b": NUMBERS * 900, "c": NUMBERS}, False),
        (
            ["text", "title"],
            {"a": [f"a{i}" for i in range(30)], "b": [f"b{i}" for i in range(30)]},
            False,
        ),
        (["2.5", None], {"a": NUMBERS, "b": NUMBERS}, True),
        (["99", "M"], {"a": NUMBERS, "b": ["F", "M"] * 15}, False),
    ],
)
def test_a_first_line_is_a_row_if_all_its_values_are_like_those_below(names, columns, expected):
    assert is_row(names, pd.DataFrame(columns)) == expected


@pytest.fixture
def nameless(people):
    path = people.with_name("nameless.csv")
    pd.read_csv(people).to_csv(path, index=False, header=False)
    return path


def test_a_file_without_names_of_columns_has_all_its_rows(people, nameless):
    named = data_of(people, "dataset.group=sex")[1]
    dataset, data = data_of(
        nameless,
        "dataset.target=5",
        "dataset.group=4",
        "dataset.header=none",
        "dataset.categorical=[3]",
    )
    assert dataset.rows == 60
    assert torch.equal(data.train.inputs, named.train.inputs)
    assert torch.equal(data.test.targets, named.test.targets)


def test_a_row_that_would_vanish_as_names_is_shown_with_the_way_out(nameless):
    first = nameless.read_text().splitlines()[0]
    with pytest.warns(
        UserWarning, match=rf"looks like a row: {re.escape(first)}; set .*header=none"
    ):
        compose(settings(nameless, f"dataset.target='{first.split(',')[-1]}'"))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_an_encoding_is_named_where_it_is_not_utf_8(people, encoding):
    text = people.read_text().replace("York", "Zürich")
    people.write_text(text, encoding="utf-8")
    _, expected = data_of(people)
    people.write_text(text, encoding=encoding)
    with pytest.raises(UserError, match=r"'utf-8' codec can't decode .*dataset.encoding"):
        compose(settings(people))
    dataset, data = data_of(people, f"dataset.encoding={encoding}")
    assert "Zürich" in dataset.preparation(0).categories["town"]
    assert torch.equal(data.train.inputs, expected.train.inputs)
    with pytest.raises(
        UserError, match=r"dataset.encoding='klingon' is unknown: write utf-8, utf-"
    ):
        compose(settings(people, "dataset.encoding=klingon"))


@pytest.fixture
def marked(people):
    frame = pd.read_csv(people)
    frame["town"] = frame["town"].mask(frame.index % 5 == 0, "NA")
    frame["age"] = frame["age"].astype(object).mask(frame.index % 7 == 0, "?")
    frame["wage"] = frame["wage"].mask(frame.index % 9 == 0, -9)
    return frame, people


MARKS = "dataset.missing_values=[?,NA,-9]"


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_marks_of_no_value_are_as_empty_cells(marked, ending):
    frame, people = marked
    frame.replace({"NA": None, "?": None, -9: None}).to_csv(people, index=False)
    _, expected = data_of(people, "dataset.missing=indicator")
    path = people.with_suffix(ending)
    if ending == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame["age"] = pd.to_numeric(frame["age"], errors="coerce").fillna(-9)
        frame.to_parquet(path)
    _, data = data_of(path, "dataset.missing=indicator", MARKS)
    assert torch.equal(data.train.inputs, expected.train.inputs)
    with pytest.raises(UserError, match=r"\(age 9, wage 7, town 12\).* set dataset.missing=impute"):
        compose(settings(path, MARKS))


def test_new_rows_have_the_same_marks(marked, tmp_path):
    frame, people = marked
    frame.to_csv(people, index=False)
    small = [
        "model=logistic",
        "epochs=1",
        "batch_size=16",
        "save_model=true",
        f"results_dir={tmp_path}",
    ]
    record = load_or_run(
        run_config(settings(people, MARKS, "dataset.missing=impute", *small)), quiet=True
    )
    prepare = load_preparation(tmp_path / "models" / f"{record.stem}.preparation.json")
    dataset, data = data_of(people, MARKS, "dataset.missing=impute")
    assert torch.equal(prepare(frame)[dataset.order(0)[0]], data.train.inputs)


def test_a_mark_is_shown_with_its_setting(marked):
    frame, people = marked
    frame.to_csv(people, index=False)
    with pytest.raises(
        UserError, match=r"numbers, but '\?' in row 1: replace it or remove the row, set"
    ):
        compose(settings(people))
    with (
        pytest.warns(
            UserWarning, match="column wage of .* has -9 in 7 rows, apart from all other val"
        ),
        pytest.warns(UserWarning, match=r"'NA' in 12 rows, .* 'dataset.missing_values=\[\"NA\"\]'"),
    ):
        compose(settings(people, "dataset.drop=[age]"))
    listed = "dataset.categories={town: [Bonn, Rome, York]}"
    compose(settings(people, "dataset.drop=[age,wage]", listed))  # says of NA that it is none


def test_older_runs_keep_their_names(people):
    from dpbench.runs.records.digest import scientific

    known = scientific(compose(settings(people)))["dataset"]
    assert not {"header", "encoding", "missing_values", "users"} & known.keys()
