"""Runs under laws other than Poisson's: what they say of their epsilon, and its recount."""

import math

import pytest

from dpbench.comparison.verify.records import contradictions
from dpbench.privacy.accountants import pld
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import load
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.system.errors import UserError

ALLOCATION = ["sampler=allocation"]
TRUNCATED = ["sampler=truncated", "batch_limit=330"]


def planned(*overrides: str):
    run, whole = prepare(run_config(["privacy=noise1", "privacy.accountant=pld", *overrides]))
    return whole, privacy_statement(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize("law", [ALLOCATION, TRUNCATED])
def test_a_run_has_the_epsilon_of_its_own_law_and_verify_recounts_it(law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = load_or_run(
        run_config([*law, "privacy=noise1", "epochs=1", "results_dir=results"]), quiet=True
    )
    record = load(path)
    assert record is not None
    assert record.privacy["guarantee"] == "proven"
    assert math.isfinite(record.privacy["pld"])
    assert [said for said in contradictions(record) if "uncommitted" not in said] == []
    record.privacy["pld"] *= 0.9
    assert any("has pld=" in said for said in contradictions(record))


@pytest.mark.slow
def test_one_run_under_several_laws_has_an_epsilon_for_each_or_none():
    poisson, truncated, allocation, shuffled = (
        planned(*law)[1] for law in ([], TRUNCATED, ALLOCATION, ["sampler=shuffled"])
    )
    assert poisson["pld"] < truncated["pld"] < 1.1 * poisson["pld"]
    assert 0.8 * poisson["pld"] < allocation["pld"] < poisson["pld"]
    assert allocation["rdp"] is None
    assert "privacy.accountant=pld" in allocation["refused"]["rdp"]
    # What holds is stated for the law that is sampled, and for no other.
    turns = (
        f"each example is in exactly 1 of the {1 / poisson['sample_rate']:.0f} batches of an epoch"
    )
    assert turns in allocation["why"]
    assert "PLD accounts for that law; RDP and GDP do not." in allocation["why"]
    assert " are cut at " in truncated["why"]
    for said in (allocation, truncated):
        assert said["why"].startswith("Sampled Gaussian mechanism")
    assert (shuffled["pld"], shuffled["guarantee"]) == (None, "none")
    assert truncated["sample_rate"] == allocation["sample_rate"] == poisson["sample_rate"]


@pytest.mark.slow
def test_a_target_is_met_by_allocation_with_several_turns_and_a_noisy_count():
    whole, said = planned(
        *("method=dpsgd_f", "sampler=allocation", "participations=2", "epochs=2"),
        *("privacy.noise_multiplier=null", "privacy.epsilon=3"),
    )
    assert 2.97 < said["pld"] <= 3
    assert said["pld"] == pld(whole.ledger, said["delta"])
    assert whole.steps == 2 * 2 * round(1 / said["sample_rate"])


@pytest.mark.parametrize("law", [ALLOCATION, TRUNCATED])
@pytest.mark.parametrize(
    "method", ["dp_mf", "dicesgd", "dpsgd_jl", "dp_losgd", "dp_signsgd_laplace", "dp_signlosgd"]
)
def test_methods_with_an_account_for_poisson_alone_are_refused(method, law):
    with pytest.raises(UserError, match="sampler=poisson") as error:
        planned(*law, f"method={method}")
    assert str(error.value).count("sampler=poisson") == 1


def test_a_method_without_a_proof_has_none_and_noise_within_an_epoch_does_not_change():
    said = planned(*ALLOCATION, "method=dpsgd", "method.variant=paper")[1]
    assert (said["guarantee"], said["pld"]) == ("none", None)
    pieces = "{_target_:dpbench.mechanism.schedules.Pieces,values:[1.0,2.0],until:[%s]}"
    with pytest.raises(UserError, match="change between epochs alone"):
        planned(*ALLOCATION, "schedule=custom", f"schedule.noise={pieces % 0.33}")
    between = planned(*ALLOCATION, "schedule=custom", f"schedule.noise={pieces % 0.5}")[1]
    assert between["pld"] > 0


def test_settings_of_other_laws_leave_the_names_of_runs_as_they_were():
    config = compose([])
    without = {k: v for k, v in config.items() if k not in ("batch_limit", "participations")}
    assert digest(config) == digest(without)
    assert digest(compose(ALLOCATION)) != digest(compose([*ALLOCATION, "participations=2"]))
    assert plan(build(without)).sampler.law == plan(build(config)).sampler.law
