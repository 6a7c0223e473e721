"""A table that the `datasets` library loads."""

import re

import pandas as pd
import pytest
import torch

from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import scientific
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import data_of


def test_a_table_by_the_datasets_library_is_the_same_as_by_its_file(people, no_cache):
    direct, data = data_of(people, "dataset.group=sex")
    asked = ["dataset=hub", f"dataset.path='{people}'", "dataset.target=rich", "dataset.group=sex"]
    run = run_of(run_config(asked))
    config = run.config
    assert config["choices"]["dataset"] == "hub:people_of"
    assert "path" not in scientific(config)["dataset"]
    assert (run.dataset.shape, run.dataset.checksum) == (direct.shape, direct.checksum)
    loaded = run.dataset.load(people, 0)
    assert torch.equal(loaded.train.inputs, data.train.inputs)
    assert torch.equal(loaded.test.targets, data.test.targets)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["dataset.path=a/b"], "a/b may change on the hub: set dataset.revision to a commit"),
        (["dataset.path=a/b", "dataset.revision=main"], "not to 'm"),
        (["dataset.path=a/b/c"], "'a/b/c' is neither a folder nor a name on the hub"),
        (["dataset.path=3"], "dataset.path must be a name on the hub or a folder, got 3"),
        (["dataset.path=a/b", f"dataset.revision={'0' * 40}"], "dataset.path=a/b cannot be"),
        (["dataset.part=tset"], "cannot be loaded with dataset.part=tset"),
    ],
)
def test_files_that_cannot_be_loaded_are_one_sentence(people, no_cache, more, sentence):
    asked = ["dataset=hub", f"dataset.path='{people}'", "dataset.target=rich", *more]
    with pytest.raises(UserError) as told:
        compose(asked)
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("cut.jsonl", '{"age": 1, "rich": 0}\n{"age": 1', r"=train: JSON parse error: .*\."),
        ("empty.jsonl", "", r"=train: it has no rows\."),
        (
            "commas.tsv",
            "age,rich\n1,0\n",
            r"has a single column, 'age,rich': set dataset.separator",
        ),
        ("typo.jsonl", None, r"typo\.jsonl is not a file, as seen from"),
    ],
)
def test_a_file_without_a_table_is_told_why(tmp_path, no_cache, name, text, sentence):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=sentence):
        compose(["dataset=hub", f"dataset.path='{tmp_path / name}'", "dataset.target=rich"])


@pytest.mark.parametrize("other", ["more.csv", "rows.parquet"])
def test_a_table_of_a_folder_that_would_not_be_read_is_refused(people, no_cache, tmp_path, other):
    (tmp_path / "rows").mkdir()
    frame = pd.read_csv(people)
    frame.to_csv(tmp_path / "rows" / "train.csv", index=False)
    words = ["dataset=hub", f"dataset.path='{tmp_path / 'rows'}'", "dataset.target=rich"]
    compose(words)
    write = frame.to_csv if other.endswith("csv") else frame.to_parquet
    write(tmp_path / "rows" / other, index=False)
    with pytest.raises(UserError, match=rf"has {re.escape(other)}, which the datasets library"):
        compose(words)
