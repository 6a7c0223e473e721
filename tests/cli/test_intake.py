"""The page of one's own data: the counts are those of pandas, and what hinders a run is on it."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from dpbench.cli.main import main

N = 120


@pytest.fixture
def table(tmp_path):
    """Twenty-four patients with five rows each, of which three rows are copies."""
    draws = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "patient": np.repeat(np.arange(24), 5) + 1000,
            "age": draws.normal(50, 10, N).round(3),
            "town": draws.choice(["Bonn", "bonn ", "Rome"], N),
            "day": pd.date_range("2024-01-01", periods=N).astype(str),
            "one": 1,
            "label": np.arange(N) % 3,
        }
    )
    frame.loc[::10, "age"] = np.nan
    frame = pd.concat([frame, frame[5:8]])
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    return path, frame


def page_of(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["dpbench", "data", *words])
    main()
    return capsys.readouterr().out


def test_the_facts_are_those_of_pandas(table, tmp_path, monkeypatch, capsys):
    path, frame = table
    words = ["dataset=csv", f"dataset.file={path}", "dataset.target=label", "dataset.group=town"]
    page = page_of(monkeypatch, capsys, *words, f"out={tmp_path / 'facts'}")
    assert (tmp_path / "facts.md").read_text() == page
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["lines"], facts["rows"], facts["copies"]) == (124, 123, 3)
    assert facts["classes"] == {str(k): int(n) for k, n in frame["label"].value_counts().items()}
    assert facts["groups"] == frame["town"].value_counts().to_dict()
    assert facts["identifiers"] == ["patient"]
    by_name = {column[0]: column for column in facts["columns"]}
    for name, (_, _, missing, different, *_) in by_name.items():
        assert missing == frame[name].isna().sum()
        assert different == frame[name].nunique()
    kinds = {name: column[1] for name, column in by_name.items()}
    assert kinds == {
        "patient": "whole numbers, an identifier?",
        "age": "numbers",
        "town": "texts",
        "day": "dates",
        "one": "constant whole numbers",
        "label": "whole numbers",
    }
    assert "refused" in by_name["day"][5]
    assert (
        "dates, such as '2024-01-01'" in facts["refused"] or "no usable value" in facts["refused"]
    )
    assert "no epsilon covers them" in page


def test_people_and_what_becomes_of_columns_are_on_the_page(table, monkeypatch, capsys):
    path, _ = table
    words = ["dataset=csv", f"dataset.file={path}", "dataset.target=label", "dataset.drop=[day]"]
    more = ["users=column", "users.column=patient", "dataset.missing=indicator"]
    page = page_of(monkeypatch, capsys, *words, *more, "dataset.standardise={age: [50, 10]}")
    assert "| people | 24, 5 to 8 rows each, 5 in the median |" in page
    for line in (
        "| patient | whole numbers, an identifier? | 0 | 24 | 1000 to 1023 | says whose a row is |",
        "| less 50, over 10; the mean, or no category, where missing, and one that says so |",
        "| 3 features, one for each value | values from all rows",
        "| left out |",
    ):
        assert line in page
    assert "Why there is no run yet" not in page


def test_what_a_column_costs_and_what_it_would_cost_with_noise_are_on_the_page(
    table, monkeypatch, capsys
):
    path, _ = table
    words = ["dataset=csv", f"dataset.file={path}", "dataset.target=label", "dataset.drop=[day]"]
    words += ["dataset.missing=impute"]
    plain = page_of(monkeypatch, capsys, *words)
    assert "with noise: 'dataset.bounds={patient: [LOWEST, HIGHEST]}'" in plain
    assert "with noise: 'dataset.categories={town: 20}'" in plain
    ranges = "dataset.bounds={age: [0, 99], one: [0, 2], patient: [0, 2000]}"
    given = page_of(monkeypatch, capsys, *words, ranges, "dataset.categories={town: 3}")
    assert "| 0 to 2 scaled to -1 to 1 | public range; mean and deviation with noise" in given
    assert "| 4 features: 3 values at most, and others | frequent values, with noise" in given
    one = page_of(monkeypatch, capsys, *words, "dataset.categories={town: 1}")
    assert "| 2 features: 1 value at most, and others | frequent values, with noise" in one
    constant = page_of(monkeypatch, capsys, *words, "dataset.categorical=[one]")
    assert "| 1 feature, one for each value | values from all rows" in constant
    assert given.count("normalization=private_columns") == 4


@pytest.mark.parametrize("target", [["dataset.target=label"], []])
@pytest.mark.parametrize(
    ("scale", "why"),
    [
        ("{age: [50]}", "dataset.standardise.age must be [mean, deviation above 0]."),
        ("{age: [50, 0]}", "dataset.standardise.age must be [mean, deviation above 0]."),
        ("{age: 50}", "dataset.standardise must be text or a mapping of lists of numbers"),
        ("mean", "dataset.standardise='mean' is unknown"),
    ],
)
def test_a_scale_that_is_none_is_on_the_page(table, monkeypatch, capsys, scale, why, target):
    path, _ = table
    words = ["dataset=csv", f"dataset.file={path}", f"dataset.standardise={scale}", *target]
    page = page_of(monkeypatch, capsys, *words)
    assert "| age | numbers |" in page
    assert (why if target else "dataset.target must name the column to predict") in page


def test_a_column_of_people_and_nothing_else_has_a_page(tmp_path, monkeypatch, capsys):
    path = tmp_path / "lines.csv"
    path.write_text("line\n" + "one\ntwo\n" * 10)
    words = ["dataset.task=language_model", "dataset.text=line", "users=column"]
    page = page_of(
        monkeypatch, capsys, *("dataset=csv", f"dataset.file={path}"), *words, "users.column=line"
    )
    assert "users.column=line cannot be the target" in page


def test_test_rows_in_training_are_counted(table, tmp_path, monkeypatch, capsys):
    path, frame = table
    frame[:11].to_csv(tmp_path / "test.csv", index=False)
    words = ["dataset=csv", f"dataset.file={path}", f"dataset.test_file={tmp_path / 'test.csv'}"]
    assert "| test rows | 11, of which 11 are in training, too |" in page_of(
        monkeypatch, capsys, *words
    )


def test_images_have_a_page(tmp_path, monkeypatch, capsys):
    from PIL import Image

    for name in ("cat", "dog", "Dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("L", (8, 8), 80 * number).save(tmp_path / "pets" / name / f"{number}.png")
    page = page_of(monkeypatch, capsys, "dataset=images", f"dataset.folder={tmp_path / 'pets'}")
    assert "| classes | 3: Dog (3), cat (3), dog (3) |" in page
    assert "'Dog' and 'dog', which are different classes" in page


def test_other_data_have_no_page(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        page_of(monkeypatch, capsys, "dataset=digits")
    assert "an intake page is of data of your own" in capsys.readouterr().err
