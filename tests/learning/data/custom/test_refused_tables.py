"""Files that are no table, and settings that do not fit one: each is refused in one sentence."""

import re

import numpy as np
import pandas as pd
import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import settings


def test_a_table_without_a_target_or_with_another_separator_is_told_what_it_lacks(people):
    with pytest.raises(UserError, match=r"must name the column to predict: choose from age, rich"):
        compose([*settings(people), "dataset.target=null"])
    people.write_text(people.read_text().replace(",", ";"))
    with pytest.raises(UserError, match=r"has a single column, 'age;.*dataset\.separator=';'"):
        compose(settings(people))
    compose([*settings(people), 'dataset.separator=";"'])


def test_a_separator_is_one_character_and_other_formats_are_told_their_reader(people):
    with pytest.raises(UserError, match=r"separator must be one character, .* got ';;'"):
        compose([*settings(people), 'dataset.separator=";;"'])
    file = people.with_suffix(".jsonl")
    pd.read_csv(people).to_json(file, orient="records", lines=True)
    asked = [word.replace(str(people), str(file)) for word in settings(people)]
    with pytest.raises(UserError, match=r"no CSV file: .*read JSON or Arrow by dataset=hub"):
        compose(asked)


@pytest.mark.parametrize("given", ["5", "'?'", "[[1]]"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_missing_values_are_a_list(people, ending, given):
    file = people.with_suffix(ending)
    if ending == ".parquet":
        pd.read_csv(people).to_parquet(file)
    for more in ([], ["users=column", "users.column=town"]):
        with pytest.raises(UserError, match="missing_values"):
            compose(settings(file, *more, f"dataset.missing_values={given}"))


@pytest.mark.parametrize("ending", [".xlsx", ".XLS", ".ods"])
def test_a_spreadsheet_is_told_its_format(people, ending):
    path = people.with_suffix(ending)
    path.write_bytes(b"PK\x03\x04\x14\0" + bytes(range(128, 256)))
    with pytest.raises(UserError, match="is no CSV file: save it as one"):
        compose(settings(path))


@pytest.mark.parametrize("name", ["1E5", "1_000", "+3", "TRUE", "NaN"])
def test_a_column_that_is_named_like_a_number_is_told_in_quotes(people, name):
    pd.read_csv(people).rename(columns={"rich": name, "age": "1.50"}).to_csv(people, index=False)
    setting, dropped = f'dataset.target="{name}"', 'dataset.drop=["1.50"]'
    with pytest.raises(UserError, match=f"'{re.escape(setting)}'"):
        compose(settings(people, f"dataset.target={name}"))
    assert compose(settings(people, setting))["dataset"]["target"] == name
    with pytest.raises(UserError, match=f"'{re.escape(dropped)}'"):
        compose(settings(people, setting, "dataset.drop=[1.5]"))
    compose(settings(people, setting, dropped))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text[: len(text) // 2].rpartition(",")[0], "no usable value in column "),
        (lambda text: "", "No columns to parse"),
        (lambda text: text.splitlines()[0], "has 0 rows"),
        (lambda text: "\n".join(text.splitlines()[:2]), "has 1 row, but a run needs"),
        (lambda text: text + '"1,2,3\n', "EOF inside string"),
        (lambda text: text + "1,2,3,4,5,6,7\n", "Expected 5 fields in line 62, saw 7"),
        (lambda text: text.replace("Bonn", "", 1), "no usable value in column town of row"),
        (lambda text: text.replace("rich", "poor"), "dataset.target=rich is unknown"),
        (lambda text: text.replace("no\n", "yes\n"), "has only one class in column rich"),
        (lambda text: text + "inf,1,Bonn,f,yes\n", "no usable value in column age of row 61"),
        (
            lambda text: text + "?,1,Bonn,f,yes\n",
            "people of.csv has numbers, but '?' in row 61: replace",
        ),
        (
            lambda text: "\n".join(f"{row},n{n}" for n, row in enumerate(text.split())),
            "has 60 different texts in 60 rows, such as 'n1', like a column of names: leave",
        ),
    ],
)
def test_a_cut_or_wrong_file_is_one_sentence(people, spoil, sentence):
    people.write_text(spoil(people.read_text()))
    with pytest.raises(UserError) as told:
        compose(settings(people))
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_row_without_a_group_is_refused_where_the_group_is_no_feature_too(people):
    people.write_text(people.read_text() + "30,1,Bonn,,yes\n")
    asked = settings(people, "dataset.drop=[sex]")
    compose(asked)
    with pytest.raises(UserError, match="in column sex of row 61: complete the row, or remove it;"):
        compose([*asked, "dataset.group=sex"])


def test_a_file_that_is_no_text_is_one_sentence(people):
    people.write_bytes(bytes(range(256)))
    with pytest.raises(UserError, match="is not a table of values separated by ','"):
        compose(settings(people))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["dataset.target=rihc"], "dataset.target=rihc is unknown: did you mean rich?"),
        (["dataset.group=gender"], "dataset.group=gender is unknown: choose from"),
        (["dataset.group=wage"], "dataset.group=wage has fractional numbers in "),
        (["dataset.drop=[towm]"], "dataset.drop=towm is unknown: did you mean town?"),
        (["dataset.drop=town"], "dataset.drop must be a list of texts"),
        (["dataset.categorical=[3]"], "dataset.categorical=3 is unknown: choose from age"),
        (["dataset.categorical=3"], "dataset.categorical must be a list of texts or numbers"),
        (["dataset.drop=[true]"], "is quoted, as in 'dataset.drop=[\"true\"]'."),
        (["dataset.group=1e3"], "is quoted, as in 'dataset.group=\"1000.0\"'; choose from age"),
        (["dataset.drop=[rich]"], "dataset.target=rich cannot be dropped."),
        (["dataset.task=ranking"], "dataset.task=ranking is unknown"),
        (["dataset.task=regression"], "dataset.target=rich is not a number"),
        (["dataset.rows=61"], "dataset.rows is 61, but "),
        (["dataset.checksum='sha256:0'"], "but dataset.checksum is sha256:0"),
        (["dataset.file=nowhere.csv"], "nowhere.csv is not a file: give its path"),
        (["dataset.file=3"], "dataset.file must be the name of a file, got 3"),
        (["dataset.separator=''"], "dataset.separator must be one character"),
        (["dataset.standardise=test"], "dataset.standardise='test' is unknown: write train, none"),
        (["dataset.standardise={age:[1]}"], "dataset.standardise.age must be [mean, deviation"),
        (["dataset.standardise={agee:[1,2]}"], "dataset.standardise=agee is unknown"),
        (["dataset.standardise={town:[1,2]}"], "dataset.standardise=town is unknown: choose from"),
        (["~dataset.standardise"], "your data set with `defaults: [csv]`, which has all"),
        (["dataset.test_share=0.001"], "leaves no example to test on"),
        (["dataset.name='a/b'"], "dataset.name='a/b' must consist of letters"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(people, more, sentence):
    with pytest.raises(UserError) as told:
        run_of(run_config(settings(people, *more)))
    assert sentence in str(told.value)


def test_too_many_categories_are_refused(tmp_path):
    path = tmp_path / "names.csv"
    pd.DataFrame({"name": [f"n{i}" for i in range(1001)], "rich": np.arange(1001) % 2}).to_csv(
        path, index=False
    )
    with pytest.raises(UserError, match=r"1001 different values.*leave it out with dataset.drop"):
        compose(settings(path, "dataset.categorical=[name]"))
