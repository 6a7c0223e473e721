"""Quotes in CSV files: values with line breaks, and rows that they would swallow."""

import csv
import re

import pandas as pd
import pytest

from dpbench.learning.data.custom.quotes import joined_lines
from dpbench.runs.config.compose import compose
from dpbench.runs.records.digest import digest
from dpbench.system.errors import UserError

COUNT, UNPAIRED = 40, {5: '"oops', 8: '"ouch'}


@pytest.fixture
def notes(tmp_path):
    """A file of COUNT rows, of which the fifth and the eighth have a quote that nothing closes."""
    rows = [f"{n / 8}\t{n % 2}\t{UNPAIRED.get(n, 'fine')}\t{n % 3}" for n in range(1, COUNT + 1)]
    path = tmp_path / "notes.tsv"
    path.write_text("\n".join(["score\tlabel\tnote\tkids", *rows, ""]))
    return path


def rows_of(path, *more, target="label", option="dataset=csv", setting="file"):
    words = [option, f"dataset.{setting}={path}", f"dataset.target={target}", *more]
    return compose(words)["dataset"]["rows"]


TABS = 'dataset.separator="\\t"'
NONE = "dataset.quotes=none"


def test_rows_that_quotes_join_are_refused_with_their_lines_and_the_way_out(notes):
    says = (
        r"notes\.tsv is read as 37 rows, one of them from lines 6 to 9, .* set dataset\.quotes=no"
    )
    with pytest.raises(UserError, match=says):
        rows_of(notes, TABS)
    assert rows_of(notes, TABS, NONE) == COUNT
    assert rows_of(notes, TABS, "dataset.rows=37") == 37


def test_a_closing_quote_in_another_row_is_refused_too(notes):
    notes.write_text(notes.read_text().replace('"ouch', 'ouch"'))
    with pytest.raises(UserError, match="37 rows, one of them from lines 6 to 9, which"):
        rows_of(notes, TABS)
    assert rows_of(notes, TABS, NONE) == COUNT


def test_a_quote_that_nothing_closes_is_told_of_the_setting(notes):
    notes.write_text(notes.read_text().replace('"ouch', "ouch"))
    with pytest.raises(UserError, match=r"EOF inside string .*; dataset.separator, dataset.quotes"):
        rows_of(notes, TABS)
    assert rows_of(notes, TABS, NONE) == COUNT


def test_rows_of_a_test_file_are_looked_at_too(notes, tmp_path):
    (tmp_path / "train.tsv").write_text(notes.read_text().replace('"', ""))
    with pytest.raises(UserError, match=r"^dataset\.test_file=.*notes\.tsv is read as 37 rows"):
        rows_of(tmp_path / "train.tsv", TABS, f"dataset.test_file={notes}")


@pytest.mark.slow
def test_the_same_file_by_the_datasets_library_is_refused(notes, no_cache):
    of_hub = {"option": "dataset=hub", "setting": "path"}
    with pytest.raises(UserError, match=r"lines 6 to 9, .*: set dataset.quotes=none"):
        rows_of(notes, **of_hub)
    assert rows_of(notes, "dataset.rows=37", **of_hub) == 37


TEXTS = ["Good,\nreally good", 'He said "yes"\nand left', "One,\ntwo,\nthree", "plain", "\nlast\n"]


@pytest.mark.parametrize("columns", [["label", "text"], ["text", "label"], ["label", "n", "text"]])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_breaks_of_a_text_in_quotes_are_read(tmp_path, columns, newline):
    """Of two columns, the second line of the first text has the commas of a row."""
    frame = pd.DataFrame(
        {"text": TEXTS * 8, "label": ["no", "yes"] * 20, "n": [1, *[1, 2, 3] * 13]}
    )
    frame[columns].to_csv(tmp_path / "texts.csv", index=False, lineterminator=newline)
    assert rows_of(tmp_path / "texts.csv", "dataset.categorical=[text]") == 40


def test_quotes_of_sentences_are_as_in_the_paraphrases_of_microsoft(tmp_path):
    """Tabs separate the values of these files, and quotes are characters, closed or not."""
    lines = [f'{n % 2}\t{n}\t{n + 9}\t"It fell," he said.\tIt fell {n}.' for n in range(30)]
    lines[3] = '1\t3\t12\t"It fell.\tHe said: "It fell."'
    path = tmp_path / "paraphrases.txt"
    path.write_text("\n".join(["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", *lines]))
    words = [
        TABS,
        "dataset.drop=['#1 ID','#2 ID']",
        "dataset.categorical=['#1 String','#2 String']",
    ]
    with pytest.raises(UserError):
        rows_of(path, *words, target="Quality")
    assert rows_of(path, *words, NONE, target="Quality") == 30


def test_a_long_file_of_regular_rows_is_not_read_again(people, monkeypatch):
    monkeypatch.setattr("dpbench.data.custom.csv_files.joined_lines", None)
    assert rows_of(people, target="rich") == 60


def test_a_value_may_be_longer_than_the_limit_of_the_csv_module(tmp_path):
    path, limit = tmp_path / "long.csv", csv.field_size_limit(131_072)
    path.write_text(f'a,b\n1,"{"x" * 200_000}\ny"\n2,z\n')
    assert joined_lines(path, ",", pd.read_csv(path)) is None
    csv.field_size_limit(limit)


def test_the_setting_is_in_the_name_of_a_run_only_where_it_is_set(people):
    words = ["dataset=csv", f"dataset.file='{people}'", "dataset.target=rich"]
    assert digest(compose([*words, "dataset.quotes=double"])) == digest(compose(words))
    assert digest(compose([*words, NONE])) != digest(compose(words))
    with pytest.raises(
        UserError, match=re.escape("dataset.quotes=no is unknown: did you mean non")
    ):
        compose([*words, "dataset.quotes=no"])
