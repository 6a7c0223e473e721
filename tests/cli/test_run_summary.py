"""The line about a finished run."""

import math
import re

import pytest

from dpbench.cli.main import main
from dpbench.cli.run_summary import summary
from dpbench.runs.records.epsilon import unspent
from dpbench.runs.records.record import Record


def record(metrics, privacy, seconds=12.4):
    return Record({}, metrics, privacy, {"seconds": seconds}, status="complete")


LEDGER = [{"sampling": {"law": "Poisson", "rate": 0.1}}]
PROVEN = {"guarantee": "proven", "pld": 3.104, "delta": 1e-5, "ledger": LEDGER}
GROUPS = {"test/accuracy": 0.9123, "test/accuracy/women": 0.95, "test/accuracy/men": 0.871}


@pytest.mark.parametrize(
    ("metrics", "privacy", "expected"),
    [
        (
            GROUPS | {"test/ece": 0.0321, "train_set/accuracy": 0.99},
            PROVEN,
            "test accuracy 91.2%, worst group 87.1% (men), test ECE 3.2%, epsilon 3.11 (PLD, delta "
            "1e-05, per example, add-or-remove adjacency, Poisson batches, proven), 12 s",
        ),
        (
            {"validation/accuracy": 0.5, "validation/loss": 1.0},
            PROVEN | {"guarantee": "none"},
            "validation accuracy 50.0% (exact, not covered), epsilon: no proof, 12 s",
        ),
        (
            {"validation/accuracy": 0.5, "validation/accuracy/a": 0.2, "validation/accuracy/b": 1},
            PROVEN | {"guarantee": "none"},
            "validation accuracy 50.0% (exact, not covered), worst group 20.0% (a) (exact, not "
            "covered), epsilon",
        ),
        (
            {"test/r2": 0.25, "test/rmse": 0.7512, "test/loss": 1.0},
            {"guarantee": "none", "pld": float("inf")},
            "test R² 0.250, test root mean squared error 0.751, epsilon: not private, 12 s",
        ),
        ({"test/accuracy": float("nan")}, PROVEN, "test accuracy nan%, epsilon 3.11"),
        (
            {"test/accuracy": 0.5},
            PROVEN | {"attacks": {"membership_advantage": 0.24681}},
            "test accuracy 50.0%, epsilon 3.11 (PLD, delta 1e-05, per example, add-or-remove "
            "adjacency, Poisson batches, proven), membership advantage at most 24.7%, 12 s",
        ),
    ],
)
def test_the_summary_has_the_main_results(metrics, privacy, expected):
    assert summary(record(metrics, privacy)).startswith(expected)


def test_a_trial_of_a_private_search_is_not_said_to_cost_its_own_epsilon_alone():
    attacks = {"attacks": {"membership_advantage": 0.2}}
    trial = Record({"trial": "abc"}, GROUPS, PROVEN | attacks, {}, status="complete")
    assert summary(trial).endswith("epsilon: see its search")


def test_the_summary_goes_to_standard_error(tmp_path, monkeypatch, capsys):
    command = ["dpbench", "run", "epochs=1", "model=logistic", f"results_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", command)
    results = r"test accuracy [\d.]+%, worst group .* \(\d\), test ECE .*"
    terms = "per example, add-or-remove adjacency, Poisson batches, proven"
    notes = "notes on the data in privacy.notes of the record"
    budget = rf"PLD, delta 1e-05, noise for 3, {terms}, {notes}"
    line = rf"{results} \({budget}\), membership advantage at most 1[45]\.\d%"
    earlier = "dpbench: finished earlier, so nothing was trained: "
    for said in (rf"{line}, \d+ s\n", rf"{earlier}{line}\n"):
        main()
        out, err = capsys.readouterr()
        assert re.fullmatch(rf"{tmp_path}/runs/\w+\.json\n", out)
        assert re.search(said, err)


@pytest.mark.parametrize("values", [(math.nan, 0.3, 0.5), (0.5, math.nan, 0.3)])
def test_a_group_without_examples_is_not_the_worst(values):
    groups = {f"test/accuracy/{name}": value for name, value in zip("abc", values, strict=True)}
    assert "worst group 30.0%" in summary(record({"test/accuracy": 0.4} | groups, PROVEN))


@pytest.mark.parametrize(
    ("accountant", "budget"), [("rdp", "3 by RDP"), ("pld", "3 by PLD"), ("best", "3")]
)
def test_the_target_epsilon_is_shown_beside_the_spent_one(accountant, budget):
    made = record(GROUPS, PROVEN)
    made.config["privacy"] = {"epsilon": 3.0, "accountant": accountant}
    assert f"epsilon 3.11 (PLD, delta 1e-05, noise for {budget}, per" in summary(made)
    made.config["privacy"] = {"epsilon": None, "accountant": accountant}
    assert "noise for" not in summary(made)


@pytest.mark.parametrize(
    ("target", "accountant", "said"),
    [
        (3.0, "rdp", ""),
        (None, "rdp", ""),
        (3.6, "rdp", "Noise for epsilon 3.6 by RDP spends 3.11 by PLD: privacy.accountant=best "),
        (900.0, "best", "Noise for epsilon 900 spends 3.11 by PLD: no larger epsilon takes less "),
        (900.0, "rdp", "Noise for epsilon 900 by RDP spends 3.11 by PLD: no larger epsilon takes "),
    ],
)
def test_an_epsilon_of_which_a_tenth_is_not_spent_is_named(target, accountant, said):
    config, made = {"privacy": {"epsilon": target, "accountant": accountant}}, PROVEN | {"rdp": 3.5}
    assert unspent([(config, made)]).startswith(said or "")
    assert bool(unspent([({}, made), (config, made)])) == bool(said)
    assert unspent([(config | {"trial": "abc"}, made)]) == ""
