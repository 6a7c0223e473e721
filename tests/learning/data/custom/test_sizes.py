"""Large tables: refused before they are read, unless the user says that they may be."""

import gzip

import pandas as pd
import pytest

from dpbench.learning.data.custom import sizes
from dpbench.runs.config.compose import compose
from dpbench.runs.records.digest import digest
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import settings

LARGE = "dataset.large=true"


@pytest.fixture
def unread(monkeypatch):
    """No table is parsed."""

    def fail(*_, **__):
        raise AssertionError("it is parsed")

    monkeypatch.setattr(pd, "read_csv", fail)


@pytest.fixture
def packed(people):
    path = people.with_name("people.csv.gz")
    path.write_bytes(gzip.compress(people.read_bytes()))
    return path


@pytest.mark.parametrize(("limit", "most"), [("MOST_VALUES", 50), ("MOST_BYTES", 999)])
def test_a_packed_file_is_measured_unpacked(packed, unread, monkeypatch, limit, most):
    monkeypatch.setattr(sizes, limit, most)
    says = r"people\.csv\.gz has 61 rows or more of 5 columns, .*set dataset\.large=true to read"
    with pytest.raises(UserError, match=says):
        compose(settings(packed))


def test_counting_ends_at_the_limit(packed, monkeypatch):
    packed.write_bytes(gzip.compress(b"a,b\n" + b"1,0\n" * 1000))
    monkeypatch.setattr(sizes, "CHUNK", 40)
    monkeypatch.setattr(sizes, "MOST_VALUES", 200)
    assert sizes.size_of(packed, ",", whole=False).lines == 101
    assert sizes.size_of(packed, ",", whole=True) == (1001, 2, 4004)


def test_a_file_of_very_many_columns_is_refused(tmp_path, unread):
    path = tmp_path / "wide.csv"
    path.write_text(f"{','.join(map(str, range(20_001)))}\n{'0,' * 20_000}1\n")
    with pytest.raises(UserError, match="has 1 row or more of 20,001 columns, "):
        compose(settings(path, "dataset.target=0"))


def test_a_large_table_that_may_be_read_is_the_same_run(people, monkeypatch):
    before = digest(compose(settings(people)))
    monkeypatch.setattr(sizes, "MOST_VALUES", 50)
    people.touch()
    with pytest.raises(UserError, match=r"dataset\.large=true"):
        compose(settings(people))
    assert digest(compose(settings(people, LARGE))) == before


@pytest.mark.slow
def test_other_tables_of_the_datasets_library_are_measured_first(people, no_cache, monkeypatch):
    path = people.with_suffix(".jsonl")
    pd.read_csv(people).to_json(path, orient="records", lines=True)
    words = ["dataset=hub", f"dataset.path='{path}'", "dataset.target=rich"]
    compose(words)
    monkeypatch.setattr(sizes, "MOST_VALUES", 299)
    with pytest.raises(UserError, match="has 60 rows or more of 5 columns"):
        compose(words)
    monkeypatch.setattr(sizes, "MOST_VALUES", 300)
    compose(words)


def test_a_packed_file_that_is_cut_is_one_sentence(packed):
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match="ended before the end-of-stream marker was reached"):
        compose(settings(packed))
