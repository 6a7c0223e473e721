"""Files of installed packages (docs/public_files.md): counts of their pages are those of pandas."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from dpbench.learning.data.custom.intake import intake
from dpbench.runs.config.compose import before_data

SKLEARN, PLOTLY = "sklearn/datasets/data", "plotly/package_data/datasets"

FILES = {
    f"{SKLEARN}/iris.csv": {"target": "virginica"},
    f"{SKLEARN}/digits.csv.gz": {"target": "65", "header": "none"},
    f"{SKLEARN}/diabetes_data_raw.csv.gz": {"target": "2", "header": "none", "separator": " "},
    f"{SKLEARN}/linnerud_exercise.csv": {"target": "Jumps", "separator": " "},
    f"{PLOTLY}/stocks.csv.gz": {"target": "GOOG", "drop": "[date]"},
    f"{PLOTLY}/tips.csv.gz": {"target": "smoker", "group": "sex"},
    f"{PLOTLY}/gapminder.csv.gz": {"target": "continent", "user": "country"},
    f"{PLOTLY}/medals.csv.gz": {"target": "nation"},
}
"""By path in its package: the options, and the column of people."""


@pytest.mark.parametrize("name", FILES)
def test_its_counts_are_those_of_pandas(name):
    package, _, rest = name.partition("/")
    if (spec := find_spec(package)) is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    path, options = Path(spec.origin).parent / rest, dict(FILES[name])
    if not path.is_file():
        pytest.skip(f"this version of {package} has no {rest}")
    user = options.pop("user", None)
    people = ["users=column", f"users.column={user}"] if user else []
    words = [
        f'dataset.{key}="{value}"' if key != "drop" else f"dataset.{key}={value}"
        for key, value in options.items()
    ]
    config = before_data(["dataset=csv", f"dataset.file='{path}'", *words, *people])
    facts = intake(config["dataset"], config["users"])
    bare = options.get("header") == "none"
    frame = pd.read_csv(path, sep=options.get("separator", ","), header=None if bare else 0)
    if bare:
        frame.columns = [str(number + 1) for number in frame]
    assert (facts.rows, len(facts.columns)) == frame.shape
    for column in facts.columns:
        counted = frame[column.name].isna().sum(), frame[column.name].nunique()
        assert (column.missing, column.different) == counted, column.name
    assert sorted(facts.classes.values()) == sorted(frame[options["target"]].value_counts())
    if user:
        assert sorted(facts.people) == sorted(frame[user].value_counts())
