"""Every type of column from every source: read, or refused by one sentence; the same for all."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench import load_preparation
from dpbench.learning.data.custom.column_types import plain
from dpbench.learning.data.custom.hub import frame_of
from dpbench.learning.data.custom.source import OwnTable
from dpbench.learning.data.custom.table import labels_of
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from tests.omissions import extra

N = 48
DAYS = pd.date_range("2024-01-01", periods=N)
FEW_DAYS = DAYS[np.arange(N) % 3]
PAIR = np.arange(N) % 2

NUMBER, TWO, THREE = 1, 2, 3
DATES, DURATIONS = r"has dates, such as '20", r"has durations, such as '0 days"
MISSING = "has no usable value in column"
NAMES = "48 different texts in 48 rows"

TYPES = {
    "int8": (np.arange(N, dtype="int8"), NUMBER),
    "uint64": (np.arange(N, dtype="uint64") + 2**63, NUMBER),
    "float16": (np.arange(N, dtype="float16") / 4, NUMBER),
    "float64": (np.arange(N) / 7, NUMBER),
    "Int64": (pd.array(range(N), dtype="Int64"), NUMBER),
    "Int64 missing": (pd.array([None, *range(1, N)], dtype="Int64"), MISSING),
    "float missing": ([np.nan, *range(1, N)], MISSING),
    "infinite": ([np.inf, *range(1, N)], MISSING),
    "huge": ([1e39, *range(1, N)], MISSING),
    "decimal": ([decimal.Decimal(i) / 4 for i in range(N)], NUMBER),
    "decimal missing": ([None, *(decimal.Decimal(i) / 4 for i in range(1, N))], MISSING),
    "bool": (PAIR == 1, TWO),
    "boolean": (pd.array(PAIR == 1, dtype="boolean"), TWO),
    "boolean missing": (pd.array([None, *(PAIR[1:] == 1)], dtype="boolean"), MISSING),
    "text": (np.array(["b", "a"])[PAIR], TWO),
    "text missing": ([None, *np.array(["b", "a"])[PAIR[1:]]], MISSING),
    "names": ([f"Ann {i}" for i in range(N)], NAMES),
    "categorical": (pd.Categorical(np.array(["b", "a"])[PAIR]), TWO),
    "categorical numbers": (pd.Categorical(PAIR + 3), NUMBER),
    "categorical missing": (pd.Categorical([None, *np.array(["b", "a"])[PAIR[1:]]]), MISSING),
    "all missing": ([None] * N, MISSING),
    "date": ([*DAYS.date], DATES),
    "timestamp": (DAYS, DATES),
    "timestamp with time": (DAYS + pd.Timedelta("1h"), DATES),
    "timestamp with zone": (DAYS.tz_localize("Europe/Rome"), DATES),
    "timestamp missing": ([pd.NaT, *DAYS[1:]], DATES),
    "few dates": (FEW_DAYS, THREE),
    "duration": (pd.to_timedelta(np.arange(N), unit="h"), DURATIONS),
    "few durations": (pd.to_timedelta(np.arange(N) % 3, unit="D"), THREE),
    "time": ([datetime.time(i % 24, i) for i in range(N)], "has times of day, such as '00:00:00"),
    "bytes": ([b"ab%d" % i for i in range(N)], NAMES),
    "list": ([[i % 2, 2] for i in range(N)], TWO),
    "lists of lists": ([[[i, 1.5], []] for i in range(N)], NAMES),
    "list missing": ([None, *[["a"]] * (N - 1)], MISSING),
    "mapping": ([{"a": i, "b": {"c": "d"}} for i in range(N)], NAMES),
    "mixed": ([*range(N - 3), "a", "b", "c"], "has numbers, but 'a' in row 46"),
    "mixed truth": ([True, "x", False] * (N // 3), THREE),
}
"""By name: the values, and the number of features or what the refusal says."""

NOT_IN = {
    "parquet": {"mixed", "mixed truth"},
    "folder": {"mixed", "mixed truth"},
    "jsonl": {"mixed", "mixed truth", "bytes", "duration", "few durations", "time", "infinite"},
}
"""What a source cannot hold; pandas writes it otherwise, or not at all."""

FRAME = pd.DataFrame({n: v for n, (v, _) in TYPES.items()}).assign(y=np.arange(N) // 2 % 2)


def write(frame, source, folder):
    """The overrides that read a table written to a folder as that source."""
    file = folder / f"rows.{ {'csv by hub': 'csv', 'folder': 'parquet'}.get(source, source) }"
    frame = frame.drop(columns=[*NOT_IN.get(source, ())], errors="ignore")
    if file.suffix == ".csv":
        frame.to_csv(file, index=False)
    elif file.suffix == ".parquet":
        frame.to_parquet(file)
    else:
        for name in frame:
            if name.startswith("decimal"):
                frame = frame.astype({name: "float64"})
        frame.to_json(file, orient="records", lines=True, date_format="iso")
    if source == "csv":
        return ["dataset=csv", f"dataset.file={file}", "dataset.target=y"]
    place = folder if source == "folder" else file
    return ["dataset=hub", f"dataset.path={place}", "dataset.target=y"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """written(source): the overrides that read all types of columns from it."""
    known = {}

    def of(source):
        if source not in known:
            known[source] = write(FRAME, source, tmp_path_factory.mktemp("rows"))
        return known[source]

    return of


def only(column, source):
    others = [f"'{name}'" for name in FRAME if name not in (column, "y", *NOT_IN.get(source, ()))]
    return f"dataset.drop=[{','.join(others)}]"


@pytest.mark.sampled(60)
@pytest.mark.filterwarnings("ignore:column .* numbers the rows")
@pytest.mark.parametrize("source", ["csv", "csv by hub", "parquet", "folder", "jsonl"])
@pytest.mark.parametrize("column", TYPES)
def test_every_type_from_every_source_is_read_or_refused(column, source, written, no_cache):
    if column in NOT_IN.get(source, ()):
        return
    asked, expected = [*written(source), only(column, source)], TYPES[column][1]
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected) as refusal:
            compose(asked)
        assert column in str(refusal.value)
        assert "\n" not in str(refusal.value)
        return
    dataset = run_of(run_config([*asked, "model=logistic"])).dataset
    inputs = dataset.load(None, 0).train.inputs
    assert dataset.shape == (expected,) == inputs.shape[1:]
    assert len(dataset.preparation(0).numbers) == (expected == NUMBER)


READ = [name for name, (_, expected) in TYPES.items() if isinstance(expected, int)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:column .* numbers the rows")
@pytest.mark.parametrize("source", ["csv", "parquet", "jsonl"])
def test_the_saved_preparation_prepares_rows_alike(source, written, no_cache, tmp_path):
    names = [name for name in READ if name not in NOT_IN.get(source, ())]
    drop = [f"'{name}'" for name in FRAME if name not in (*names, "y", *NOT_IN.get(source, ()))]
    small = ["model=logistic", "epochs=1", "batch_size=16", "save_model=true"]
    asked = [*written(source), f"dataset.drop=[{','.join(drop)}]", *small]
    record = load_or_run(run_config([*asked, f"results_dir={tmp_path}"]), quiet=True)
    prepare = load_preparation(tmp_path / "models" / f"{record.stem}.preparation.json")
    dataset = run_of(run_config(asked)).dataset
    data, order = dataset.load(None, 0), np.concatenate(dataset.order(0))
    inputs = torch.cat([data.train.inputs, data.test.inputs])
    assert torch.equal(prepare(dataset.read().frame)[order], inputs)
    if source == "parquet":
        assert torch.equal(prepare(FRAME)[order], inputs)


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([decimal.Decimal("1.50"), 2, None], "float64"),
        ([1, np.int8(2)], "int64"),
        ([10**30, 1], "str"),
        ([decimal.Decimal("NaN"), decimal.Decimal("Infinity")], "float64"),
        ([True, np.True_], "bool"),
        ([True, None], "object"),
        ([True, 2], "str"),
        ([1, "a", 2.5], "str"),
        ([{"a": 1}, "a"], "str"),
        (pd.array([1.5, None], dtype="Float64"), "float64"),
        (pd.array([1, 2], dtype="int64[pyarrow]"), "int64"),
        (pd.array(["a", None], dtype="string[pyarrow]"), "string"),
        (pd.period_range("2024", periods=2, freq="D"), "str"),
        (pd.interval_range(0, 2), "str"),
    ],
)
def test_a_plain_column_has_numbers_truth_values_or_texts(values, types):
    column = plain(pd.Series(values, dtype=object if isinstance(values, list) else None))
    assert column.dtype == types
    assert column.isna().tolist() == pd.Series(values, dtype=object).isna().tolist()


def test_numbers_and_texts_are_not_even_copied():
    for values in (np.arange(3), np.arange(3) / 7, np.array([True, False]), ["a", "b"]):
        column = pd.Series(values)
        assert plain(column) is column


def test_lists_are_categories_if_they_are_said_to_be(tmp_path, no_cache):
    frame = pd.DataFrame({"v": [[1, 2], [3]] * 20, "y": [0, 1, 1, 0] * 10})
    features = {}
    for source in ("csv", "parquet"):
        asked = [*write(frame, source, tmp_path), "dataset.categorical=[v]"]
        features[source] = (
            run_of(run_config([*asked, "model=logistic"])).dataset.preparation(0).categories
        )
    assert features["csv"] == features["parquet"] == {"v": ("[1, 2]", "[3]")}


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S", "%Y/%m/%d", "%Y-%m-%d"])
@pytest.mark.parametrize("source", ["csv", "parquet", "jsonl"])
def test_dates_as_texts_are_dates_from_every_source(form, source, tmp_path, no_cache):
    frame = pd.DataFrame({"day": DAYS.strftime(form), "y": PAIR})
    with pytest.raises(UserError, match=r"column day of .* has dates, such as '2024"):
        compose(write(frame, source, tmp_path))


def test_unlabelled_rows_are_no_class(tmp_path, no_cache):
    """The library marks it by -1 in a column of classes."""
    datasets = pytest.importorskip("datasets", reason=extra("hub"))
    kinds = {"x": datasets.Value("float64"), "y": datasets.ClassLabel(names=["a", "b"])}
    table = {"x": [i / 7 for i in range(40)], "y": [0, -1, *[0, 1] * 19]}
    file = tmp_path / "rows.parquet"
    datasets.Dataset.from_dict(table, datasets.Features(kinds)).to_parquet(file)
    with pytest.raises(UserError, match="no usable value in column y of row 2: complete the row"):
        compose(["dataset=hub", f"dataset.path={file}", "dataset.target=y"])


def test_classes_of_images_are_single_values_of_every_row(no_cache):
    datasets = pytest.importorskip("datasets", reason=extra("hub"))
    kind = datasets.Features({"y": datasets.ClassLabel(names=["b", "a"])})

    def labels(values, features=None, names=()):
        rows = datasets.Dataset.from_dict({"y": values}, features=features)
        return labels_of(OwnTable("rows", frame_of(rows), {}, classes=names), "y")

    names, numbers = labels([0, 1, 1], kind, ("b", "a"))
    assert names == ["b", "a"]
    assert numbers.tolist() == [0, 1, 1]
    assert labels(["b", "a"])[1].tolist() == [1, 0]
    with pytest.raises(UserError, match=r"dataset\.target=y has rows without a class"):
        labels([0, -1], kind, ("b", "a"))


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json", "tsv", "CSV", "parquet"])
def test_a_file_is_read_by_its_ending_and_not_looked_up_on_the_hub(ending, tmp_path, no_cache):
    frame = pd.DataFrame({"x": np.arange(40) / 7, "y": PAIR[:40]})
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        frame.to_parquet(file)
    elif "json" in ending:
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_csv(file, index=False, sep="\t" if ending == "tsv" else ",")
    asked = ["dataset=hub", f"dataset.path={file}", "dataset.target=y"]
    assert compose(asked)["dataset"]["features"] == 1


@pytest.mark.parametrize("name", ["rows.xlsx", "rows", "rows.csv.zip"])
def test_a_file_of_another_kind_is_refused_by_its_name(name, tmp_path, no_cache):
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(UserError, match=rf"{name} is not a table that can be read: save it with"):
        compose(["dataset=hub", f"dataset.path={tmp_path / name}", "dataset.target=y"])
