"""Categories of a table that are selected with noise: the rest are "others"."""

import json
import math
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpbench.learning.data.custom.preparation import load_preparation
from dpbench.learning.data.custom.table_rows import TableRows
from dpbench.learning.data.examples import Split
from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import GaussianMechanism, Ledger
from dpbench.privacy.profiles import ledger_profile
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import read
from dpbench.runs.records.trained_model import load_model, model_file
from dpbench.runs.training.statistics import (
    FAILURE_SHARE,
    MOST_SHARES,
    PrivateColumns,
    counts_of,
    threshold,
)
from tests.runs.training.small_runs import keyed

DELTA = 1e-5
TABLE = SimpleNamespace(bounded=1, selected=(2, 3), train_size=100)
"""One number, and two columns whose categories are selected: inputs [n, 1 + 3 + 4]."""


def split(rows, people=None):
    """Rows of a number and two codes."""
    inputs = torch.zeros(len(rows), 8)
    if rows:
        inputs[:, [0, 1, 4]] = torch.tensor(rows, dtype=torch.float32)
    nothing = torch.zeros(len(rows), dtype=torch.long)
    return Split(inputs, nothing, nothing, people=people)


def answer(rows, people=None):
    """All that is measured, nearly without noise, of at least five codes a column."""
    found = PrivateColumns(1e-9).answers(split(rows, people), TABLE, keyed())
    parts = [part.masked_fill(part.isinf(), 0) for part in found]
    return torch.cat([parts[0], *(torch.nn.functional.pad(c, (0, 5 - len(c))) for c in parts[1:])])


codes = st.integers(-1, 4)


@given(
    st.lists(st.tuples(st.floats(-9, 9, width=32), codes, codes), min_size=2, max_size=9),
    st.lists(st.integers(0, 2), min_size=9, max_size=9),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_one_row_or_one_person_moves_all_sums_together_by_at_most_the_bound(rows, owners):
    bound = math.sqrt(2 + 2) + 1e-6
    assert (answer(rows) - answer(rows[1:])).norm() <= bound
    people = torch.tensor(owners[: len(rows)])
    others = people != people[0]
    left = [row for row, other in zip(rows, others, strict=True) if other]
    rest = answer(left, people[others]) if left else torch.zeros(12)
    assert (answer(rows, people) - rest).norm() <= bound


def slow_counts(owners, values, number, least):
    counts = np.zeros(number)
    for person in {*owners}:
        theirs = [v for v, owner in zip(values, owners, strict=True) if owner == person]
        for value in range(number):
            share = theirs.count(value) / len(theirs)
            counts[value] += share if share >= least else 0
    return counts


@given(st.lists(st.tuples(st.integers(0, 3), codes), min_size=1, max_size=40))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_a_person_counts_by_the_shares_of_their_rows_for_at_most_ten_categories(rows):
    owners, values = zip(*rows, strict=True)
    for least in (0.0, 0.1):
        counts = counts_of(torch.tensor(values), 5, torch.tensor(owners), least)
        assert counts.tolist() == pytest.approx(slow_counts(owners, values, 5, least))
    one = torch.zeros(30, dtype=torch.long)
    many = split([[0.0, code, code // 3] for code in range(30)], one)
    _, thirty, ten = PrivateColumns(1e-9).answers(many, TABLE, keyed())
    assert thirty.isneginf().all()
    assert ten.tolist() == pytest.approx([1 / MOST_SHARES] * 10)


@given(st.lists(st.floats(0.1, 1), min_size=1, max_size=10), st.floats(0.5, 50), st.integers(1, 5))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_what_a_person_alone_has_is_selected_with_at_most_the_probability_of_the_ledger(
    weights, multiplier, columns
):
    """However their rows are spread over categories; in columns alike, which is the worst."""
    shares = np.array(weights) / max(sum(weights), 1)
    failure, scale = FAILURE_SHARE * DELTA, multiplier * math.sqrt(columns)
    above = norm.sf((threshold(scale, failure, columns) - shares) / scale)
    likely = -math.expm1(columns * np.log1p(-above).sum())
    assert likely / (1 - likely) <= failure


@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_the_exact_profile_of_a_selection_is_within_that_of_the_ledger(multiplier):
    """One column: the neighbour has a value that others have, or one that nobody else has. What
    stays below the threshold is one outcome, "not selected"."""
    table = SimpleNamespace(bounded=0, selected=(9,))
    ledger = Ledger().after(PrivateColumns(multiplier).step(table, DELTA))
    profile = ledger_profile(ledger, DELTA)
    least = threshold(multiplier, FAILURE_SHARE * DELTA, 1)
    edges = np.concatenate([[-math.inf], np.linspace(least, least + 12 * multiplier, 4001)])
    for others in (1, round(least), round(least + 3 * multiplier)):
        for count, next_count in ((others, others + 1), (others + 1, others)):
            p, q = (np.diff(norm.cdf(edges, c, multiplier)) for c in (count, next_count))
            for epsilon in (0.0, 0.3, 1.0):
                exact = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                assert exact <= profile.at(np.array(epsilon)) + 1e-12
    alone = norm.sf((least - 1) / multiplier)
    assert alone < FAILURE_SHARE * DELTA
    assert pld(ledger, DELTA) == pytest.approx(reference(multiplier), rel=1e-4)


def reference(multiplier):
    """Epsilon by Google's library, at what is left of delta."""
    account = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    account.compose(dp_accounting.GaussianDpEvent(multiplier))
    return account.get_epsilon((1 - FAILURE_SHARE) * DELTA)


def test_the_noise_of_counts_has_the_scale_of_the_ledger(variance_p):
    (release,) = PrivateColumns(3.0).step(TABLE, DELTA).releases
    assert release.mechanism == GaussianMechanism(3.0, failure=FAILURE_SHARE * DELTA)
    rows = split([[0.0, 0, 1], [0.0, 1, 0]])
    drawn = [PrivateColumns(3.0).answers(rows, TABLE, keyed(key))[1] - 1 for key in range(250)]
    noise = torch.cat(drawn) / math.sqrt(2 + 2)
    assert variance_p(noise, 3.0) > 1e-3
    assert variance_p(noise, 2.0) < 1e-6
    assert variance_p(noise, 4.5) < 1e-6


def test_frequent_categories_are_features_in_their_order_and_all_others_one():
    rows = [[0.0, 2, 0]] * 300 + [[0.0, 0, 0]] * 200 + [[0.0, 1, 0]] * 100 + [[0.0, -1, 3]] * 2
    found = PrivateColumns(1.0).measured(split(rows), TABLE, DELTA, keyed())
    inputs = found(split(rows).inputs)[[0, 300, 500, 600], 1:]
    assert inputs[:, :3].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert inputs[:, 3:].tolist() == [[1, 0, 0, 0]] * 3 + [[0, 0, 0, 1]]


@pytest.fixture
def visits(tmp_path):
    draws = np.random.default_rng(0)
    n = 1500
    towns = np.where(draws.random(n) < 0.6, "Bonn", "Rome").astype(object)
    towns[:3] = ["Only Anna", "Only Bert", "Only Cleo"]
    frame = pd.DataFrame({"age": draws.normal(50, 9, n), "town": towns})
    frame["sick"] = np.where(frame["age"] + 9 * (towns == "Rome") > 52, "yes", "no")
    frame["who"] = np.arange(n) // 3
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return frame, [
        *("dataset=csv", f"dataset.file={tmp_path / 'visits.csv'}", "dataset.target=sick"),
        *("dataset.bounds={age: [0, 120]}", "dataset.categories={town: 4}"),
        *("normalization=private_columns", "normalization.noise_multiplier=5%", "privacy=eps3"),
        *("privacy.delta=1e-4", "model=logistic", "batch_size=64", "epochs=5", "save_model=true"),
        *("optimizer.lr=1", f"results_dir={tmp_path}", "users=column", "users.column=who"),
    ]


def test_a_saved_model_has_the_constants_that_were_measured_and_says_what_is_covered(
    visits, tmp_path
):
    frame, words = visits
    record = read(load_or_run(run_config(words), quiet=True))
    assert record.metrics["test/accuracy"] > 0.8
    covered = record.privacy["covered"]
    assert covered["categories of town"] == covered["means and deviations"] == "epsilon"
    assert (covered["ranges"], covered["categories of other columns"]) == ("public", "exact")
    file = model_file(record, tmp_path)
    kept = file.with_suffix(".preparation.json")
    assert "Only" not in kept.read_text()
    told = json.loads(kept.read_text())["privacy"]
    assert "covered by epsilon: number of rows" not in told
    assert "covered by epsilon: categories of town, means and deviations" in told
    assert "exact, not covered: number of rows, number of people, classes and groups" in told
    assert told.split(": ", 1)[1].rstrip(".") in torch.load(file)["privacy"]
    run = prepare(run_config(words))[0]
    data = run.load(None)
    test = data.test.at(torch.arange(len(data.test))).inputs
    prepare_rows = load_preparation(kept)
    assert prepare_rows.selected == {"town": ("Bonn", "Rome", None, None)}
    _, places = run.dataset.order(run.seed, frame["who"].to_numpy())
    rows = prepare_rows(frame.iloc[places])
    assert torch.allclose(rows, test, atol=1e-5)
    load_model(file)(rows)


def test_nobody_is_told_of_a_category_that_one_person_has(visits):
    """The record, its ledger and its notes are those of a table in which others have the town."""
    _, words = visits
    run, planned = prepare(run_config(words))
    assert run.dataset.shape == (1 + 5,)
    assert "selected with noise, and epsilon pays for them" in " ".join(run.notes)
    free, _ = prepare(run_config([*words, "method=sgd"]))
    assert "selected with noise;" in " ".join(free.notes)
    assert "Only" not in repr(run) + repr(planned)


def test_a_privately_selected_column_may_have_more_values_than_features(tmp_path):
    n = 2600
    frame = pd.DataFrame({"zip": [f"z{k % 1200}" for k in range(n)], "y": np.arange(n) % 2})
    frame.to_csv(tmp_path / "zip.csv", index=False)
    words = [f"dataset.file={tmp_path / 'zip.csv'}", "dataset.target=y", "dataset=csv"]
    more = ["dataset.categories={zip: 3}", "normalization=private_columns", "model=logistic"]
    run = prepare(run_config([*words, *more, "privacy.delta=1e-4"]))[0]
    inputs = run.load(None).train.at(torch.arange(100)).inputs
    assert inputs.tolist() == [[0, 0, 0, 1]] * 100


def test_the_names_of_columns_and_not_their_order_say_which_is_which():
    for categories in ({"b": 2, "a": 3}, {"a": 3, "b": 2}):
        table = SimpleNamespace(text=None, categories=categories)
        assert TableRows.selected.fget(table) == (3, 2)
