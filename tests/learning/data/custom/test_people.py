"""`users=column`: all rows of a person are sampled, clipped, accounted for and tested together."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench import load_preparation
from dpbench.learning.data.custom.people import people_of
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest, scientific
from dpbench.runs.records.reading import read
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.runs.training.start import private_step
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import settings
from tests.step.methods.every_method import listening

USERS = ["users=column", "users.column=patient_id"]
SMALL = ["model=logistic", "method=dp_fedsgd", "batch_size=4", "epochs=2", "privacy.delta=1e-2"]


def rows_of(people):
    """Twenty people with one to five rows each, in no order."""
    frame = pd.read_csv(people)
    draws = np.random.default_rng(1)
    owners = np.repeat(np.arange(20), [1, 2, 3, 4, 5] * 4)[:60]
    return frame.assign(patient_id=draws.permutation(owners) + 8_000_000)


@pytest.fixture
def patients(people):
    rows_of(people).to_csv(people, index=False)
    return people


def loaded(path, *more, seed=0):
    run = run_of(run_config(settings(path, *USERS, *SMALL, *more)))
    return run, run.load(path.parent)


def test_people_are_units_and_not_features(patients):
    run, data = loaded(patients)
    dataset = run.dataset
    assert (dataset.people, dataset.train_people) == (20, 16)
    assert run.users.most == 5
    assert "patient_id" not in dataset.preparation(0).numbers
    train, test = ({*part.people.tolist()} for part in (data.train, data.test))
    assert (len(train), len(test), train & test) == (16, 4, set())
    users = run.users.of(data.train, 0)
    assert len(users) == 16
    for user, members in enumerate(users.members.split(users.sizes.tolist())):
        assert len({*data.train.people[members].tolist()}) == 1, user
    assert users.sizes.sum() == len(data.train)


def test_a_record_counts_people_and_says_so(patients, tmp_path):
    record = read(
        load_or_run(run_config(settings(patients, *USERS, *SMALL, f"results_dir={tmp_path}")))
    )
    assert record.privacy["unit"] == "user"
    assert record.privacy["ledger"][0]["sampling"] == {
        "law": "Poisson",
        "rate": 0.25,
        "unit": "user",
    }
    assert "A user is all rows with one value of column patient_id" in " ".join(
        record.privacy["notes"]
    )


@pytest.mark.slow
def test_the_saved_preparation_is_of_the_people_who_train(patients, tmp_path):
    words = settings(patients, *USERS, *SMALL, "save_model=true", f"results_dir={tmp_path}")
    record = load_or_run(run_config(words), quiet=True)
    prepare_rows = load_preparation(tmp_path / "models" / f"{record.stem}.preparation.json")
    dataset = run_of(run_config(words)).dataset
    frame = dataset.read().frame
    train, _ = dataset.order(0, people_of(frame, "patient_id"))
    assert torch.equal(prepare_rows(frame)[train], dataset.load(None, 0).train.inputs)
    ages = frame["age"][train]
    assert prepare_rows.numbers["age"] == (ages.mean(), pytest.approx(ages.std()))


def test_epsilon_is_that_of_another_account(patients):
    accounting = pytest.importorskip("dp_accounting")
    run, planned = prepare(run_config(settings(patients, *USERS, *SMALL)))
    noise, steps = planned.noise_multiplier, planned.steps
    assert (planned.sampler.rate, steps) == (1 / 4, 8)
    event = accounting.SelfComposedDpEvent(
        accounting.PoissonSampledDpEvent(1 / 4, accounting.GaussianDpEvent(noise)), steps
    )
    other = accounting.pld.PLDAccountant()
    other.compose(event)
    epsilon = privacy_statement(run, planned)["pld"]
    assert other.get_epsilon(1e-2) == pytest.approx(epsilon, rel=0.02)


@pytest.mark.parametrize("method", ["dp_fedsgd", "dpsgd", "dp_fedavg"])
def test_without_one_patient_the_sum_moves_by_the_bound_at_most(patients, method):
    """Every patient is removed in turn."""
    run, data = loaded(patients, f"method={method}", "model=logistic")
    planned = plan(run)
    planned = replace(planned, method=listening(planned.method))
    step = private_step(run, planned, torch.device("cpu"))
    population, everybody = run.users.of(data.train, 0), torch.arange(16)
    released = ReleasedState(1, 2, torch.linspace(-1, 1, len(step.engine.parameters.theta)))
    theta = step.engine.parameters.theta
    start = theta.detach().clone()
    step.method.noise.calls.clear()
    for users in (everybody, *(everybody[everybody != user] for user in everybody)):
        step.released = released  # all neighbours share it, and the model
        theta.data.copy_(start)
        step(population.at(users))
    (whole, bound, _), *others = step.method.noise.calls
    moved = [(whole - total).norm().item() for total, *_ in others]
    assert len(moved) == 16
    assert bound / 50 < max(moved) <= bound * (1 + 1e-5)


def test_rows_beyond_the_cap_are_left_out_with_a_word_on_the_bias(patients):
    with pytest.warns(
        UserWarning, match=r"most=2 leaves out up to 24 of 60 rows, of 12 of 20 people"
    ):
        run, data = loaded(patients, "users.most=2")
    users = run.users.of(data.train, 0)
    assert users.sizes.max() == 2
    whole = pd.Series(data.train.people.numpy()).value_counts().clip(upper=2).sum()
    assert users.sizes.sum() == whole
    first, again, other = (run.users.of(data.train, seed).members.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.filterwarnings("ignore:users.most=2 leaves out")
@pytest.mark.parametrize("most", [2, 5])
def test_with_one_person_fewer_all_others_keep_their_rows_in_their_order(patients, most):
    """Whoever knows the seed knows the draws: those of one must not depend on another. The order is
    that of the local batches of dp_fedavg."""
    run, data = loaded(patients, f"users.most={most}")

    def kept(rows):
        users = run.users.of(rows, 0)
        of_users = (rows.at(part) for part in users.members.split(users.sizes.tolist()))
        return {tuple(map(tuple, batch.inputs.tolist())) for batch in of_users}

    everybody = kept(data.train)
    for person in data.train.people.unique():
        others = (data.train.people != person).nonzero().flatten()
        assert len(everybody - kept(data.train.take(others))) == 1


@pytest.mark.filterwarnings("ignore:column patient_id of .* like an identifier")
def test_the_unit_and_its_cap_are_in_the_name_of_a_run(patients):
    row, user = (
        digest(compose(settings(patients, *more, "dataset.drop=[patient_id]")))
        for more in ([], USERS)
    )
    assert row != user
    assert {"user", "people"}.isdisjoint(scientific(compose(settings(patients)))["dataset"])


def test_validation_is_of_people_who_do_not_train(patients):
    run, data = loaded(patients, "validation=0.25")
    assert run.dataset.train_people == 12
    train, test = ({*part.people.tolist()} for part in (data.train, data.test))
    assert (len(train), len(test), train & test) == (12, 4, set())


@pytest.mark.parametrize("mark", ["?", -9, "", "  "])
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_rows_whose_owner_is_blank_or_marked_as_missing_are_not_one_person(
    patients, no_cache, ending, mark
):
    frame, path = pd.read_csv(patients), patients.with_suffix(f".{ending}")
    known = frame["patient_id"] if mark == -9 else "P" + frame["patient_id"].astype(str)
    frame["patient_id"] = known.mask(frame.index % 3 == 0, mark)
    if ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        getattr(frame, f"to_{ending}")(path, index=False)
    given = [f"dataset.missing_values=[{mark}]"] if str(mark).strip() else []
    words = settings(path, *USERS, *given)
    if ending == "jsonl":
        words = ["dataset=hub", *(w.replace("dataset.file", "dataset.path") for w in words[1:])]
    with pytest.raises(UserError, match="has no value in row 1, one of 20 such rows: whose they"):
        compose(words)


@pytest.mark.parametrize(
    ("owner", "mark"),
    [("NA", '["NA"]'), ("Unknown", '["Unknown"]'), (-999, "[-999]"), (-1, "[-1]")],
)
def test_an_owner_like_a_missing_value_is_warned_of(patients, owner, mark):
    frame = pd.read_csv(patients)
    known = "P" + frame["patient_id"].astype(str) if isinstance(owner, str) else frame["patient_id"]
    frame["patient_id"] = known.mask(frame.index % 3 == 0, owner)
    frame.to_csv(patients, index=False)
    with pytest.warns(UserWarning, match=f"{owner}.* in 20 rows, .* of one user") as told:
        compose(settings(patients, *USERS))
    assert f"dataset.missing_values={mark}" in " ".join(str(each.message) for each in told)


def test_test_rows_of_people_who_train_are_counted(patients, tmp_path):
    frame = pd.read_csv(patients)
    frame[:40].to_csv(tmp_path / "first.csv", index=False)
    frame[40:].to_csv(tmp_path / "last.csv", index=False)
    both = {*frame["patient_id"][:40]} & {*frame["patient_id"][40:]}
    words = settings(tmp_path / "first.csv", f"dataset.test_file={tmp_path / 'last.csv'}", *USERS)
    with pytest.warns(UserWarning, match=f"^{len(both)} of the people of users.column=patient_id "):
        config = compose(words)
    assert config["dataset"]["people"] == frame["patient_id"][:40].nunique()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["users.column=patient"], "users.column=patient is unknown: did you mean patient_id?"),
        (["users.column=rich"], "users.column=rich cannot be the target"),
        (["users.column=one"], "users.column=one has one value in all rows: choose users=none"),
        (["users.column=gaps"], "users.column=gaps has no value in row 1, one of 20 such rows"),
        (["users.most=0"], "users.most"),
        (["dataset.test_share=0.02"], "test_share=0.02 of 20 people is nobody to test on"),
        (["dataset.user=patient_id"], "dataset.user=patient_id needs users=column"),
        (["users.column=null"], "users.column is missing, which names a column: choose from"),
        (["dataset=digits"], "users=column"),
        (["temperature=private"], "temperature=private requires private runs of single examples"),
    ],
)
def test_people_who_cannot_be_told_are_one_sentence(patients, more, sentence):
    frame = pd.read_csv(patients)
    ids = frame["patient_id"].astype(float).mask(frame.index % 3 == 0)
    frame.assign(one=1, gaps=ids).to_csv(patients, index=False)
    words = settings(patients, *USERS, *SMALL, "dataset.drop=[one,gaps]", *more)
    if "dataset=digits" in more:
        words = [*USERS, *SMALL, *more]
    elif "dataset.user" in more[0]:
        words = settings(patients, *more)
    with pytest.raises(UserError) as told:
        prepare(run_config(words))
    assert sentence in str(told.value)
