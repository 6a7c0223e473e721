"""Runs whose units are users: what is sampled, what is said of it, and what cannot be."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.derive.users import dirichlet, iid, shards
from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.digest import digest
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.plan import plan
from dpbench.runs.training.trainer import fit
from dpbench.step.methods.bam import bam
from dpbench.step.methods.dp_fedavg import dp_fedavg
from dpbench.step.methods.dp_fedsgd import dp_fedsgd
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.fairlens import fairlens
from dpbench.system.errors import UserError
from tests.runs.training import small_runs

NOWHERE = Path("/nowhere")  # digits need no folder
FED = dp_fedsgd(0.5, None)
LOCAL = dp_fedsgd(0.5, None, local_batch_size=2)
AVG = dp_fedavg(0.5, 2, 5, 0.1, 3)
EXAMPLES = 1438


def run_of(method=FED, users=None, **changes):
    usual = {"privacy": Privacy(4.0, None, 1e-6, "rdp"), "batch_size": 64, "users": users}
    return small_runs.run_of(method, **usual | changes)


def fitted(*args, **changes):
    return fit(run_of(*args, **changes), NOWHERE, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ghost", "vmap"])
def test_one_example_per_user_is_dpsgd_to_the_bit_and_in_the_ledger(engine):
    fed = fitted(FED, iid(EXAMPLES, 0.0), engine=engine)
    plain = fitted(dpsgd(0.5, "corrected"), engine=engine)
    assert fed.metrics == plain.metrics
    assert fed.history == plain.history
    for name in ("rdp", "pld", "gdp", "noise_multiplier", "sample_rate", "steps", "delta"):
        assert fed.privacy[name] == plain.privacy[name], name
    assert (plain.privacy["unit"], fed.privacy["unit"]) == ("example", "user")


@pytest.mark.slow
def test_a_run_on_local_batches_is_one_on_whole_data_but_for_what_is_in_them():
    users = iid(100, 0.8)
    whole, all_of_them, some = (
        fitted(dp_fedsgd(0.5, None, local_batch_size=size), users) for size in (None, 1000, 3)
    )
    assert whole.metrics == all_of_them.metrics
    assert whole.metrics != some.metrics
    assert some.status == "complete"
    assert whole.privacy == some.privacy


@pytest.mark.slow
def test_any_method_protects_the_users_there_are():
    users = iid(200, 0.5)
    plain, fed = fitted(dpsgd(0.5, "corrected"), users), fitted(FED, users)
    assert plain.metrics == fed.metrics
    assert plain.privacy["unit"] == "user"
    assert "a user with all of its examples" in plain.privacy["why"]
    assert fitted(bam(0.5, 0.05), users).status == "complete"


def test_epsilon_of_users_is_that_of_as_many_examples():
    planned = plan(run_of(FED, iid(300, 1.0)))
    assert planned.units.number == 300
    rate, steps = 1 / 5, 10  # ceil(300/64) steps an epoch
    assert planned.sampler.expected_batch_size == 60
    release = Release("gradient sum", GaussianMechanism(4.0))
    book = Ledger().after(Step(Poisson(rate), (release,)), steps)
    assert rdp(planned.ledger, 1e-6) == rdp(book, 1e-6)


def test_a_statement_names_the_unit_and_memory_is_bounded_by_itself():
    said = fitted(FED, iid(200, 0.0), epochs=1).privacy
    assert said["unit"] == "user"
    assert said["adjacency"] == "add or remove one user"
    assert said["ledger"][0]["sampling"] == {"law": "Poisson", "rate": 0.25, "unit": "user"}
    assert "public" in said["why"]
    record = fitted(FED, iid(100, 0.5), physical_batch_size="auto", epochs=1)
    assert record.status == "complete"


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("users", [iid(100, 0.8), dirichlet(100, 0.5, 0.5), shards(100, 2)])
@pytest.mark.parametrize("method", [FED, LOCAL, AVG], ids=["fedsgd", "local", "fedavg"])
def test_runs_are_the_same_in_any_physical_batches(method, users):
    whole, parts = (fitted(method, users, physical_batch_size=size) for size in (None, 7))
    assert whole.status == "complete"
    for name, value in whole.metrics.items():
        assert parts.metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-3), name


@pytest.mark.slow
def test_users_train_a_model():
    # Little noise, and users who are alike: nearly the accuracy of the plain network.
    quiet = {
        "privacy": Privacy(0.01, None, 1e-6, "rdp"),
        "sampler": "shuffled",  # so that no accountant has to tell how little it is
        "optimizer": partial(torch.optim.SGD, lr=1.0),
    }
    method = dp_fedavg(2.0, 5, 5, 0.1, None)
    record = fitted(method, iid(100, 0.3), epochs=5, batch_size=50, **quiet)
    assert record.metrics["test/accuracy"] > 0.85


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"users": None}, "dp_fedsgd protects users: choose users=iid"),
        ({"users": iid(EXAMPLES + 1, 0.0)}, "users.number=1439 is more than the 1438"),
        ({"batch_size": 101}, "larger than the 100 training users; choose at most 100"),
        ({"method": dpsgd_f(0.5, 10.0, "corrected")}, "dpsgd_f depends on the groups"),
        ({"method": fairlens(0.5, 1.0, 1.0, "corrected")}, "fairlens depends on the groups"),
        ({"augmentation": ShiftsFlips(2, 1, "zero", "none", 0.5)}, "augmentation=none"),
        ({"diagnostics": object()}, "diagnostics=none"),
    ],
)
def test_settings_incompatible_with_users_are_refused(changes, said):
    with pytest.raises(UserError, match=said):
        plan(run_of(**{"users": iid(100, 0.0)} | changes))


def test_a_delta_is_weak_for_few_users_and_records_without_users_keep_their_names():
    run = run_of(FED, iid(100, 0.0), privacy=Privacy(4.0, None, 1e-3, "rdp"))
    with pytest.warns(UserWarning, match="publishing one user in the clear"):
        plan(replace(run, privacy=Privacy(4.0, None, 0.02, "rdp")))
    plan(run)
    config = compose(["method=dpsgd"])
    older = {key: value for key, value in config.items() if key != "users"}
    assert digest(config) == digest(older)
    assert not build(older).users
    assert digest(compose(["users=iid"])) != digest(config)
    assert digest(compose(["users=iid", "users.number=9"])) != digest(compose(["users=iid"]))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "shards"])
def test_users_are_chosen_by_name_and_set_by_key(name):
    config = compose(["method=dp_fedavg", f"users={name}", "users.number=77", "batch_size=20"])
    assert json.loads(json.dumps(config)) == config
    run = build(config)
    assert run.users.number == plan(run).units.number == 77


@pytest.mark.slow
def test_a_validation_split_belongs_to_no_user():
    run = build(compose(["method=dp_fedsgd", "users=iid", "validation=0.5"]))
    assert sum(plan(run).units.sizes) == 719
