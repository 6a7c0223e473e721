"""Means and deviations of a table's numbers, measured with noise within public bounds."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.data.examples import Split
from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import read
from dpbench.runs.training.statistics import PrivateColumns
from dpbench.system.errors import UserError
from tests.runs.training.small_runs import keyed

SILENT = 1e-9  # a noise multiplier
numbers = st.floats(-1e9, 1e9, width=32) | st.just(math.nan)


def split(rows, people=None):
    nothing = torch.zeros(len(rows), dtype=torch.long)
    return Split(torch.tensor(rows), nothing, nothing, people=people)


NUMBERS = SimpleNamespace(bounded=2, train_size=1000)


def answer(rows, multiplier=SILENT, key=0):
    (sums,) = PrivateColumns(multiplier).answers(rows, NUMBERS, keyed(key))
    return sums


@given(
    st.lists(st.tuples(numbers, numbers, numbers), min_size=2, max_size=8),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_one_row_or_one_person_moves_the_sum_by_at_most_the_bound(rows, owners):
    """The noise is of scale 1e-9: it does not show."""
    bound = math.sqrt(2 * 2)
    whole = answer(split(rows))
    assert (whole - answer(split(rows[1:]))).norm() <= bound + 1e-6
    people = torch.tensor(owners[: len(rows)])
    others = people != people[0]
    of_people = answer(split(rows, people))
    if others.any():
        left = [row for row, other in zip(rows, others, strict=True) if other]
        rest = answer(split(left, people[others]))
    else:
        rest = torch.zeros(4)
    assert (of_people - rest).norm() <= bound + 1e-6


def test_the_noise_has_the_scale_of_the_ledger(variance_p):
    nothing = split([[0.0, 0.0, 5.0]])
    (release,) = PrivateColumns(3.0).step(NUMBERS, 1e-5).releases
    assert release.mechanism == GaussianMechanism(3.0)
    noise = torch.cat([answer(nothing, 3.0, key) for key in range(250)])
    assert variance_p(noise / math.sqrt(4), 3.0) > 1e-3
    assert variance_p(noise / math.sqrt(4), 2.0) < 1e-6
    assert variance_p(noise / math.sqrt(4), 4.5) < 1e-6


def test_without_noise_they_are_the_means_and_deviations():
    rows = torch.rand(1000, 3) * 0.5
    found = PrivateColumns(SILENT).measured(split(rows.tolist()), NUMBERS, 1e-5, keyed())
    scores = found(rows)
    assert scores[:, :2].mean(0).abs().max() < 1e-4
    assert scores[:, :2].std(0, correction=0).tolist() == pytest.approx([1, 1], abs=1e-3)
    assert torch.equal(scores[:, 2], rows[:, 2])


@pytest.fixture
def table(tmp_path):
    draws = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draws.normal(50, 9, 600), "pay": draws.normal(3e4, 5e3, 600)})
    frame["town"] = draws.choice(["Bonn", "Rome", "Oslo"], 600)
    frame["rich"] = np.where(frame["pay"] > 3e4, "yes", "no")
    frame["who"] = np.repeat(np.arange(150), 4)
    frame.to_csv(tmp_path / "table.csv", index=False)
    words = ["dataset=csv", f"dataset.file={tmp_path / 'table.csv'}", "dataset.target=rich"]
    more = ["model=logistic", "batch_size=32", "epochs=2", "privacy=noise1", "privacy.delta=1e-4"]
    return [*words, *more, f"results_dir={tmp_path}"]


BOUNDS = "dataset.bounds={age: [0, 120], pay: [0, 100000]}"
PRIVATE = [BOUNDS, "normalization=private_columns"]
DROP = "dataset.drop=[who]"


@pytest.mark.filterwarnings("ignore:column who of .* like an identifier")
def test_a_run_pays_for_them(table):
    free, paid = (prepare(run_config([*table, DROP, *more]))[1] for more in ([BOUNDS], PRIVATE))
    assert rdp(paid.ledger, 1e-4) > rdp(free.ledger, 1e-4)
    record = read(load_or_run(run_config([*table, DROP, *PRIVATE]), quiet=True))
    assert "epsilon pays for them" in " ".join(record.privacy["notes"])
    assert "which no epsilon covers" not in " ".join(record.privacy["notes"])
    assert record.metrics["test/accuracy"] > 0.5


@pytest.mark.filterwarnings("ignore:column who of .* like an identifier")
def test_no_epsilon_pays_where_training_is_without_privacy(table):
    more = [DROP, "class_count_noise_multiplier=20", "method=sgd"]
    run, _ = prepare(run_config([*table, *PRIVATE, *more]))
    notes = " ".join(run.notes)
    assert notes.count("with noise") == 2
    assert "epsilon pays" not in notes


def test_people_pay_for_theirs(table):
    words = [*table, *PRIVATE, "users=column", "users.column=who"]
    run, planned = prepare(run_config(words))
    assert planned.units.number == 120
    assert run.load(None).train.normalize.mean.shape == (2,)


@pytest.mark.filterwarnings("ignore:column who of .* like an identifier")
@pytest.mark.parametrize("accountant", ["rdp", pytest.param("pld", marks=pytest.mark.long)])
def test_a_share_of_the_budget_is_taken_from_the_steps_and_the_total_is_what_was_asked(
    table, accountant
):
    asked = [*table, DROP, "privacy=eps3", "privacy.delta=1e-4", f"privacy.accountant={accountant}"]
    plain = prepare(run_config([*asked, BOUNDS]))[1]
    shares = ["normalization.noise_multiplier=10%", "class_count_noise_multiplier=9%"]
    run, planned = prepare(run_config([*asked, *PRIVATE, *shares]))
    spent = {"rdp": rdp, "pld": pld}[accountant](planned.ledger, 1e-4)
    assert 2.99 < spent <= 3
    # The multiplier of a step is as much larger as 81% of the budget ask of a Gaussian mechanism.
    assert planned.noise_multiplier > 1.03 * plain.noise_multiplier
    ratio = run.class_count_noise_multiplier / run.normalization.noise_multiplier
    assert ratio == pytest.approx(math.sqrt(10 / 9))
    whole = run.normalization.noise_multiplier * math.sqrt(0.1)
    alone = Ledger().after(Step(Poisson(1.0), (Release("all", GaussianMechanism(whole)),)))
    assert 2.99 < {"rdp": rdp, "pld": pld}[accountant](alone, 1e-4) <= 3


@pytest.mark.filterwarnings("ignore:column who of .* like an identifier")
def test_bounds_are_public_constants_and_categories_a_public_list(table):
    listed = "dataset.categories={town: [Rome, Oslo]}"
    dataset = run_of(run_config([*table, DROP, BOUNDS, listed])).dataset
    assert (dataset.shape, dataset.bounded) == ((4,), 2)
    inputs = dataset.load(None, 0).train.inputs
    assert inputs[:, :2].abs().max() <= 1
    assert {*inputs[:, 2:].sum(1).tolist()} == {0, 1}
    assert "The categories of town are public" in " ".join(dataset.notes)
    narrow = BOUNDS.replace("120", "50")
    with pytest.warns(UserWarning, match="age has .* outside of its bounds: taken as 50"):
        run_of(run_config([*table, DROP, narrow])).dataset.load(None, 0)


@pytest.mark.filterwarnings("ignore:column who of .* like an identifier")
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["normalization=private_columns"], "needs dataset.bounds, and "),
        (["dataset.bounds={age: [0, 1]}"], "no range of column pay"),
        ([BOUNDS.replace("0, 120", "9, 1")], "dataset.bounds.age must be [lowest, highest]"),
        (["dataset.bounds={town: [0, 1]}"], "dataset.bounds=town is unknown"),
        ([BOUNDS, "dataset.standardise={age: [1, 2]}"], "leave out standardise"),
        (["dataset.categories={age: [1]}"], "dataset.categories=age is unknown"),
        ([*PRIVATE, "users=iid", "users.number=100"], "set users=none or users=column"),
        (["dataset.categories={town: 2}"], "set normalization=private_columns, or list them"),
        (["dataset.categories={town: 0}"], "dataset.categories.town must be a whole number"),
        (["normalization=private_columns", "dataset.categories={age: 3}"], "age is unknown"),
        ([*PRIVATE, "normalization.noise_multiplier=5%"], "which is not set: choose privacy=eps3"),
        ([*PRIVATE, "privacy=eps3", "normalization.noise_multiplier=100%"], "below 100%"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(table, more, sentence):
    with pytest.raises(UserError) as told:
        prepare(run_config([*table, DROP, *more]))
    assert sentence in str(told.value)
