"""Files as people have them: each is read as its owner means it, or refused or warned of in one
sentence that names the setting."""

import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from dpbench.learning.data.custom.sizes import size_of
from dpbench.runs.config.compose import compose
from dpbench.system.errors import UserError

N = 60
DRAWS = np.random.default_rng(0)
AGE = DRAWS.integers(18, 80, N)
PAY = DRAWS.normal(30_000, 5_000, N).round(2)
TOWN = DRAWS.choice(["Bonn", "Rome"], N)
ILL = np.where(AGE > 45, "yes", "no")
PEOPLE = pd.DataFrame({"age": AGE, "pay": PAY, "town": TOWN, "ill": ILL})
"""Two numbers and two towns: 4 features."""


def lines(separator=",", write=str, **columns):
    """The lines of the table, with other columns."""
    frame = PEOPLE.assign(**columns)
    rows = ([*map(write, row)] for row in frame.itertuples(index=False))
    return "".join(separator.join(row) + "\n" for row in ([*frame], *rows))


def every(k, other, values):
    """The values, but another one in each k-th row."""
    return [other if row % k == 0 else value for row, value in enumerate(values)]


def days(form):
    return pd.date_range("2020-01-01", periods=N).strftime(form)


def comma(value):
    return str(value).replace(".", ",")


SETTINGS_OF_DOTS = ["dataset.separator=';'", "dataset.decimal=','", "dataset.thousands='.'"]

READ = {
    "byte-order mark": ("﻿" + lines(), [], 4),
    "semicolons": (lines(";"), ["dataset.separator=';'"], 4),
    "pipes": (lines("|"), ["dataset.separator='|'"], 4),
    "spaces": (lines(" "), ["dataset.separator=' '"], 4),
    "several spaces": (lines("   "), ["dataset.separator=' '"], 4),
    "UTF-16": (lines().encode("utf-16"), ["dataset.encoding=utf-16"], 4),
    "Latin-1": (
        lines(town=every(2, "Zürich", TOWN)).encode("latin-1"),
        ["dataset.encoding=latin-1"],
        5,
    ),
    "decimal commas": (lines(";", comma), ["dataset.separator=';'", "dataset.decimal=','"], 4),
    "dots between thousands": (lines(";", pay=["1.234,5", "20.000,1"] * 30), SETTINGS_OF_DOTS, 4),
    "quoted thousands": (lines(pay=['"1,234"', '"20,000"'] * 30), ["dataset.thousands=','"], 4),
    "spaces between thousands": (lines(pay=["1 234", "20 000"] * 30), ["dataset.thousands=' '"], 4),
    "line breaks in quotes": (lines(town=every(2, '"a ""b""\nc"', TOWN)), [], 5),
    "single quotes": (lines(town=every(2, "'Bonn, Rhein'", TOWN)), ["dataset.quotes=single"], 5),
    "comments above": ("# lab 3\n# 2020\n" + lines(), ["dataset.skip=2"], 4),
    "a title above": ("Patients 2020,,,\n" + lines(), ["dataset.skip=1"], 4),
    "Excel's separator line": (
        "sep=;\n" + lines(";"),
        ["dataset.separator=';'", "dataset.skip=1"],
        4,
    ),
    "empty lines": ("\n\n" + lines().replace("\n", "\n\n"), [], 4),
    "a separator after each row": (lines().replace("\n", ",\n").replace("ill,\n", "ill\n"), [], 4),
    "line ends of Windows": (lines().replace("\n", "\r\n"), [], 4),
    "line ends of old Macs": (lines().replace("\n", "\r"), [], 4),
    "truth in letters": (lines(smokes=["T", "F"] * 30), [], 6),
    "truth and gaps": (
        lines(smokes=every(9, "", [True, False] * 30)),
        ["dataset.missing=indicator"],
        7,
    ),
    "many marks": (
        lines(age=every(7, "-", every(5, "N/A", every(4, "missing", AGE)))),
        ["dataset.missing_values=['-',missing]", "dataset.missing=impute"],
        4,
    ),
    "a mark that is a number": (
        lines(age=every(7, -9, AGE)),
        ["dataset.missing_values=[-9]", "dataset.missing=impute"],
        4,
    ),
    "numbers with exponents": (lines(pay=[f"{pay:.3e}" for pay in PAY]), [], 4),
    "classes 0.0 and 1.0": (lines(ill=(ILL == "yes").astype(float)), [], 4),
    "years as names": (lines().replace("age,pay", "2019,2020"), [], 4),
}
"""By kind: the text of a file, the settings that its owner gives, and the number of features."""


@pytest.mark.parametrize("kind", READ)
def test_what_the_owner_means_is_what_is_read(tmp_path, kind):
    text, settings, features = READ[kind]
    described = described_by(tmp_path / "table.csv", text, settings)
    assert (described["rows"], described["features"], described["classes"]) == (N, features, 2)


def described_by(path: Path, text: str | bytes, settings=()):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    words = ["dataset=csv", f"dataset.file={path}", "dataset.target=ill", *settings]
    return compose(words)["dataset"]


REFUSED = {
    "semicolons": (lines(";"), r"single column, .*set dataset\.separator"),
    "tabs": (lines("\t"), r"single column, .*set dataset\.separator"),
    "UTF-16": (lines().encode("utf-16"), "codec can't decode .*; dataset.separator, .*encoding"),
    "Latin-1": (
        lines(town=every(2, "Zürich", TOWN)).encode("latin-1"),
        "codec can't decode .*; dataset.separator, .*encoding",
    ),
    "decimal commas": (
        lines(";", comma),
        "is not a table of values separated by ',': .*dataset.separator, ",
    ),
    "decimal commas in quotes": (
        lines(pay=[f'"{comma(p)}"' for p in PAY]),
        "pay .*dataset.decimal=','",
    ),
    "money": (lines(pay=[f"€ {pay}" for pay in PAY]), "pay .* has numbers as texts"),
    "Unicode's minus": (lines(pay=[f"−{pay}" for pay in PAY]), "pay .* has numbers as texts"),
    "shares": (lines(pay=[f"{k}%" for k in range(N)]), "pay .* has numbers as texts"),
    "comments above": ("# lab 3\n# 2020\n" + lines(), "dataset.skip say how it is written"),
    "a title above": (
        "Patients 2020,,,\n" + lines(),
        "target=ill is unknown: choose from Patients 2020, Unn",
    ),
    "Excel's separator line": ("sep=;\n" + lines(), "a row has more values .*dataset.skip"),
    "single quotes": (
        lines(town=every(2, "'Bonn, Rhein'", TOWN)),
        "a row has more values .*dataset.quotes",
    ),
    "an index": (PEOPLE.to_csv(), r"without a name.*dataset\.drop=\['Unnamed: 0'\]"),
    "a separator after each line": (
        lines().replace("\n", ",\n"),
        r"dataset\.drop=\['Unnamed: 4'\]",
    ),
    "a line of totals": (
        lines() + "Total,9,,\n",
        "'Total' in row 61: replace it or remove the row",
    ),
    "a line of units": (
        lines().replace("\n", "\nyears,EUR,-,-\n", 1),
        "'years' in row 1: .*remove the row",
    ),
    "words among numbers": (
        lines(age=every(9, "unknown", AGE)),
        "'unknown' .* set 'dataset.missing_values",
    ),
    "numbers below a limit": (lines(age=every(9, "<18", AGE)), "has numbers, but '<18'"),
    "gaps": (
        lines(age=every(9, "", AGE)),
        "no usable value in column age of row 1.*dataset.missing=impute",
    ),
    "days": (lines(day=days("%d.%m.%Y")), r"has dates.*dataset\.drop=\[day\]"),
    "days with times": (lines(day=days("%Y-%m-%dT%H:%M:%SZ")), r"has dates.*dataset\.drop=\[day\]"),
    "days in words": (lines(day=days("%d %b %Y")), r"dataset\.drop=\[day\]"),
    "sentences": (
        lines(note=[f"came in on day {k} with a cough" for k in range(N)]),
        "dataset.text=note model=text",
    ),
    "identifiers": (
        lines(key=[f"{k:08x}-0000-4000-8000-{k:012x}" for k in range(N)]),
        r"dataset\.drop=\[key\]",
    ),
    "one class": (lines(ill=["yes"] * N), "only one class in column ill: choose another"),
    "amounts as classes": (lines(ill=PAY), "set dataset.task=regression"),
    "a person without a class": (
        lines(ill=every(N, "", ILL)),
        "no usable value in column ill of row 1",
    ),
    "an empty column": (lines(empty=[""] * N), r"one of 60 such cells.*dataset\.drop=\[empty\]"),
    "the target in capitals": (
        lines().replace("ill", "Ill"),
        "dataset.target=ill is unknown: did you mean Ill",
    ),
    "nothing": ("", "No columns to parse from file;"),
    "names alone": (lines().partition("\n")[0], "0 rows, but a run needs"),
}
"""By kind: the text of a file, and what is said of it."""


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_meant_is_refused_and_the_setting_named(tmp_path, kind):
    text, sentence = REFUSED[kind]
    with pytest.raises(UserError, match=sentence):
        described_by(tmp_path / "table.csv", text)


WARNED = {
    "numbered rows": (lines(no=range(N)), r"numbers the rows.*drop=\[no\]"),
    "two cases of a class": (lines(ill=every(3, "YES", ILL)), "'YES' and 'yes'"),
    "classes with spaces": (lines(ill=every(3, "yes ", ILL)), "'yes' and 'yes '"),
    "clients": (lines(client_no=[k // 4 + 100 for k in range(N)]), "users.column=client_no"),
    "addresses": (lines(mail=[f"p{k // 2}@x.org" for k in range(N)]), "users.column=mail"),
    "subjects": (lines(SubjID=[f"S{k // 2:03d}" for k in range(N)]), "users.column=SubjID"),
    "patients in German": (
        lines(Patientennummer=[k // 4 for k in range(N)]),
        "column=Patientennummer",
    ),
    "rows twice": (lines() + lines().partition("\n")[2], "60 rows of .* are copies of others"),
}


@pytest.mark.parametrize("kind", WARNED)
def test_what_may_be_meant_is_warned_of(tmp_path, kind):
    text, sentence = WARNED[kind]
    with pytest.warns(UserWarning, match=sentence):
        described_by(tmp_path / "table.csv", text)


@pytest.mark.parametrize("more", ["README.txt", "__MACOSX/._table.csv"])
def test_an_archive_of_several_files_is_not_guessed_at(tmp_path, more):
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("table.csv", lines())
        archive.writestr(more, "")
    words = ["dataset=csv", f"dataset.file={tmp_path / 'table.zip'}", "dataset.target=ill"]
    with pytest.raises(UserError, match="other than one file"):
        compose(words)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
)
def test_an_archive_of_something_else_than_a_file_is_one_sentence(tmp_path, kind):
    path, member = tmp_path / "table.csv.tar", tarfile.TarInfo("table.csv")
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member)
    with pytest.raises(UserError, match=r"other than one file in it .*: unpack it"):
        size_of(path, ",", whole=False)


def test_an_index_of_parquet_is_a_column(tmp_path):
    PEOPLE.set_index("age").to_parquet(tmp_path / "table.parquet")
    words = ["dataset=csv", f"dataset.file={tmp_path / 'table.parquet'}", "dataset.target=ill"]
    assert compose(words)["dataset"]["features"] == 4


@pytest.mark.parametrize("drop", ["[]", "[picture]"])
def test_bytes_in_parquet_are_texts_or_left_out(tmp_path, drop):
    pictures = [b"\xff\xd8"] * 20 + [b"\x89PNG"] * (len(PEOPLE) - 20)
    PEOPLE.assign(picture=pictures).to_parquet(tmp_path / "table.parquet")
    words = ["dataset=csv", f"dataset.file={tmp_path / 'table.parquet'}", "dataset.target=ill"]
    assert compose([*words, f"dataset.drop={drop}"])["dataset"]["rows"] == len(PEOPLE)


def test_parquet_whose_columns_have_no_names_of_text_is_one_sentence(tmp_path):
    path = tmp_path / "table.parquet"
    words = ["dataset=csv", f"dataset.file={path}", "dataset.target=ill"]
    PEOPLE.set_axis(pd.MultiIndex.from_product([["a"], PEOPLE.columns]), axis=1).to_parquet(path)
    with pytest.raises(
        UserError, match=r"has a column named \('a', '\w+'\): name each by one text"
    ):
        compose(words)
    for about in (b"[]", b'{"index_columns": ["gone"], "columns": [], "column_indexes": []}'):
        table = pa.Table.from_pandas(PEOPLE).replace_schema_metadata({b"pandas": about})
        pq.write_table(table, path)
        with pytest.raises(UserError, match=r"table\.parquet cannot be read: "):
            compose(words)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("dataset.skip=-1", "dataset.skip must be a whole number"),
        ("dataset.decimal=x", "dataset.decimal=x is unknown"),
        ("dataset.thousands='.'", "dataset.thousands=. is unknown"),
        ("dataset.quotes=triple", "did you mean single"),
    ],
)
def test_unknown_ways_to_write_are_refused(tmp_path, setting, sentence):
    with pytest.raises(UserError, match=sentence):
        described_by(tmp_path / "table.csv", lines(), [setting])
