"""Columns that are not what they seem: warned of, or refused until the user says what they are."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest

from dpbench.runs.config.compose import compose
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import data_of, settings


def test_a_target_of_many_numbers_is_told_of_regression(people):
    pd.read_csv(people).assign(rich=range(60)).to_csv(people, index=False)
    with pytest.warns(UserWarning, match=r"hardly any rows: .* set dataset\.task=regression\."):
        compose(settings(people))


def test_na_and_none_are_categories_where_all_else_is_text_and_missing_among_numbers(people):
    frame = pd.read_csv(people)
    people.write_text(people.read_text().replace("Bonn", "NA").replace("Rome", "None"))
    with pytest.warns(UserWarning, match="column town of .* has 'N.*' in .* rows, .* category"):
        config = compose(settings(people, "dataset.group=town"))
    assert config["dataset"]["groups"] == ["NA", "None", "York"]
    frame["town"] = "Bonn"
    frame["age"] = frame["age"].astype(str)
    frame.loc[3, "age"] = "NA"
    frame.to_csv(people, index=False)
    with pytest.raises(UserError, match="has no usable value in column age of row 4: complete"):
        compose(settings(people))


def test_all_cells_without_a_value_are_counted_at_once(people):
    frame = pd.read_csv(people)
    frame.loc[3:5, "age"] = np.nan
    frame.loc[7, "town"] = None
    frame.to_csv(people, index=False)
    with pytest.raises(UserError) as told:
        compose(settings(people))
    said = str(told.value)
    assert "in column age of row 4, one of 4 such cells (age 3, town 1): complete" in said
    assert "dataset.drop=[age,town]" in said


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d/%m/%Y", "%d.%m.%y", "%Y-%m-%d %H:%M"])
def test_dates_are_not_taken_for_categories_unless_they_are_declared(people, form):
    frame = pd.read_csv(people)
    days = pd.date_range("2020-01-01", periods=25).strftime(form)
    frame["sold"] = [days[row % 25] for row in range(len(frame))]
    gap = frame.copy()
    gap.loc[0, "sold"] = None
    gap.to_csv(people, index=False)
    with pytest.raises(UserError, match=rf"has dates, such as '{days[1]}'"):
        compose(settings(people))
    frame.to_csv(people, index=False)
    with pytest.raises(UserError, match=r"column sold of .*people of\.csv has dates, such as"):
        compose(settings(people))
    declared, dropped = (
        compose([*settings(people), f"dataset.{how}=[sold]"])["dataset"]["features"]
        for how in ("categorical", "drop")
    )
    assert declared == dropped + 25


def test_a_column_that_numbers_the_rows_and_a_rare_class_are_warned_of(people):
    frame = pd.read_csv(people).assign(id=range(1, 61))
    frame.loc[:2, "rich"] = "very"
    frame.to_csv(people, index=False)
    with (
        pytest.warns(UserWarning, match=r"column id of .*people of\.csv numbers the rows"),
        pytest.warns(UserWarning, match=r"hardly any rows: very \(3\); dataset\.group=rich"),
    ):
        compose(settings(people))
    with pytest.warns(UserWarning, match=r"hardly any rows: very \(3\)\.$"):
        compose([*settings(people), "dataset.group=rich", "dataset.drop=[id]"])


COPIES = {
    "classification": lambda frame: frame["rich"].map({"yes": 1, "no": 0}),
    "regression": lambda frame: 0.9 * frame["wage"] + 3,
}


@pytest.mark.parametrize("task", COPIES)
def test_a_column_that_tells_the_target_is_warned_of(people, task):
    target = "rich" if task == "classification" else "wage"
    frame = pd.read_csv(people)
    frame.assign(again=COPIES[task](frame)).to_csv(people, index=False)
    words = settings(people, f"dataset.target={target}", f"dataset.task={task}")
    with pytest.warns(UserWarning, match=rf"^column again of .* tells the target {target} of"):
        compose(words)
    compose([*words, "dataset.drop=[again]"])


def test_a_target_of_regression_that_is_one_number_is_refused(people):
    pd.read_csv(people).assign(wage=7).to_csv(people, index=False)
    with pytest.raises(UserError, match=r"target=wage is the same number in all rows of"):
        compose(settings(people, "dataset.target=wage", "dataset.task=regression"))


@pytest.mark.parametrize("form", ["{}%", "${}", "{},5", "1{:020}"])
def test_numbers_as_texts_are_not_taken_for_categories(people, form):
    frame = pd.read_csv(people)
    frame.assign(age=[form.format(n % 25) for n in range(len(frame))]).to_csv(people, index=False)
    with pytest.raises(UserError, match=r"column age of .* has numbers as texts, such as"):
        compose(settings(people))


@pytest.mark.parametrize("sign", ["?", "-", "NA"])
def test_a_sign_for_no_value_among_the_classes_is_warned_of(people, sign):
    people.write_text(people.read_text().replace("yes\n", f"{sign}\n", 5))
    with pytest.warns(UserWarning, match=re.escape(f"has '{sign}' in 5 rows, which is a")):
        compose(settings(people))


@pytest.mark.parametrize("other", ["YES", "Yes ", "yes "])
def test_categories_that_differ_only_in_case_or_spaces_are_warned_of(people, other):
    people.write_text(people.read_text().replace("yes\n", f"{other}\n", 5))
    first, second = sorted(["yes", other])
    with pytest.warns(UserWarning, match=f"of.csv has '{first}' and '{second}', which are"):
        assert compose(settings(people))["dataset"]["classes"] == 3


def test_categories_that_differ_only_in_spaces_within_them_are_warned_of(people):
    text = people.read_text().replace("yes\n", "so so\n")
    people.write_text(text.replace("so so\n", "so  so\n", 5))
    with pytest.warns(UserWarning, match="has 'so  so' and 'so so', which are different"):
        compose(settings(people))


def test_a_space_at_the_end_of_a_column_s_name_is_seen(people):
    people.write_text(people.read_text().replace("rich", "rich ", 1))
    with pytest.raises(UserError, match=r"target=rich is unknown: did you mean 'rich '\?"):
        compose(settings(people))
    named = [word.replace("=rich", "='rich '") for word in settings(people)]
    assert compose(named)["dataset"]["classes"] == 2


def test_categories_may_be_few_rows_or_mostly_numbers_if_they_are_said_to_be_categories(people):
    text = people.read_text()
    people.write_text(text + "?,1,Bonn,f,yes\n")
    dataset, _ = data_of(people, "dataset.categorical=[age]", "dataset.drop=[town,wage,sex]")
    assert dataset.shape == (pd.read_csv(people)["age"].nunique(),)
    people.write_text("\n".join([*text.split("\n")[:9], "20,1,Kiel,f,yes", "21,60,Hull,f,no"]))
    compose(settings(people))


def test_a_column_without_a_name_is_no_feature_unless_it_is_named(people):
    frame = pd.read_csv(people)
    frame.to_csv(people)
    with pytest.raises(UserError, match=r"a column without a name.*dataset.drop=\['Unnamed: 0'\]"):
        compose(settings(people))
    dataset, _ = data_of(people, "dataset.drop=['Unnamed: 0']")
    frame.to_csv(people, index=False)
    assert dataset.shape == data_of(people)[0].shape


def test_all_alike_spellings_are_named_and_those_of_unicode_by_their_codes(people):
    frame = pd.read_csv(people)
    spelt = {"no": ["No", "NO ", "\u201cno\u201d"], "yes": ["Yes", "yes", "yes."]}
    frame["rich"] = [spelt[label][n % 3] for n, label in enumerate(frame["rich"])]
    frame["sex"] = ["caf\xe9", "cafe\u0301", "bar"] * 20
    frame.to_csv(people, index=False)
    with (
        pytest.warns(
            UserWarning,
            match="rich of .* has 'NO ' and 'No' and '“no”'; 'Yes' and 'yes' and 'yes.', which are",
        ),
        pytest.warns(
            UserWarning, match=r"column sex of .* has 'cafe\\u0301' and 'café', which are"
        ),
    ):
        compose(settings(people, "dataset.group=sex", "dataset.drop=[sex]"))


@pytest.mark.parametrize("role", ["group", "target"])
@pytest.mark.parametrize("character", ["\0", "\x1b"])
def test_a_control_character_in_a_group_or_a_class_is_refused(people, role, character):
    column = "sex" if role == "group" else "rich"
    frame = pd.read_csv(people)
    frame[column] = [*frame[column][:-1], f"m{character}"]
    frame.to_csv(people, index=False)
    with pytest.raises(
        UserError, match=rf"has 'm\\x{ord(character):02x}' in row 60, with a control"
    ):
        compose(settings(people, f"dataset.{role}={column}", "dataset.drop=[age]"))


@pytest.mark.parametrize("name", ["home town", "Größe, Alter", 'a "b"', "c'd"])
def test_the_way_out_that_names_a_column_can_be_typed(people, name):
    """In a shell, and then in the grammar of settings."""
    frame = pd.read_csv(people)
    frame.assign(**{name: range(len(frame))}).to_csv(people, index=False)
    with pytest.warns(UserWarning, match=r"leave it out with 'dataset\.drop=.*'\.$") as told:
        compose(settings(people))
    (word,) = shlex.split(str(told[0].message).split("out with ")[1].removesuffix("."))
    assert compose(settings(people, word))["dataset"]["drop"] == [name]
