"""dpbench epsilon: the printed epsilons, and what is said of them."""

import json
import math

import pytest


# The epsilons that the paper printed, with DP-SGD.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "printed"),
    [
        ("misalignment_table4", "3.41"),
        ("misalignment_table5", "2.27"),
        ("misalignment_table2", "5.90"),
        ("misalignment_table3", "2.49"),
    ],
)
def test_epsilon_agrees_with_the_printed_one(table, printed, command, nowhere):
    done = command("epsilon", f"+table={table}", "method=dpsgd", *nowhere)
    assert (done.code, done.err) == (0, [])
    said = json.loads(done.out[-1])
    assert f"{said['rdp']:.2f}" == printed
    assert said["gdp"] < said["pld"] < said["rdp"]
    assert said["guarantee"] == "proven"


@pytest.mark.slow
def test_epsilon_states_its_terms(command, nowhere):
    table = "+table=misalignment_table4"
    said = json.loads(command("epsilon", table, "method=dpsgd_global_adapt", *nowhere).out[-1])
    assert said["delta"] == 1e-6
    assert said["noise_multiplier"] == 1.0
    assert said["sample_rate"] == 1 / 92
    assert said["steps"] == 1840
    # One batch answers both queries, which costs more than the paper's reasoning has it.
    assert said["rdp"] > said["claimed"]
    (entry,) = said["ledger"]
    assert [r["what"] for r in entry["releases"]] == ["gradient sum", "counts for the clip"]


def test_an_epsilon_is_infinite_without_privacy_and_larger_for_a_replacement(command, nowhere):
    line = command("epsilon", "method=sgd", *nowhere).out[-1]
    assert '"rdp": Infinity' in line
    said = json.loads(line)
    assert said["rdp"] == said["pld"] == said["gdp"] == math.inf
    assert said["zero_out"] == said["replace_one"] == math.inf
    said = json.loads(command("epsilon", "privacy=eps3", *nowhere).out[-1])
    assert 2 * said["pld"] < said["replace_one"] < 3 * said["pld"]
    assert said["zero_out"] == said["pld"]
    attacks = json.loads(command("epsilon", "privacy=eps3", *nowhere).out[-1])["attacks"]
    assert {*attacks} == {"membership_advantage", "true_positive_rate", "reconstruction"}
    assert 1e-4 < attacks["reconstruction"] < attacks["true_positive_rate"] < 0.1


@pytest.mark.parametrize(
    "words", ["dataset=dutch method=fairlens", "privacy=noise1 sampler=shuffled"]
)
def test_no_epsilon_is_shown_where_none_is_proven(words, command, nowhere):
    said = json.loads(command("epsilon", *words.split(), *nowhere).out[-1])
    shown = ("rdp", "pld", "gdp", "zero_out", "replace_one", "attacks")
    assert [said[name] for name in shown] == [None] * 6
    assert said["guarantee"] == "none"
    assert said["why"]


def test_several_runs_are_compared_in_a_table(command, nowhere):
    words = ["epsilon", "dataset=adult", "epochs=10,20", "privacy=noise1,eps3"]
    head, _, *lines, _, terms = command(*words, *nowhere).out
    assert terms == (
        "Epsilons: delta 1e-05 or delta 1e-06, per example, add-or-remove adjacency, Poisson "
        "batches, proven."
    )
    names = head.strip("| ").split(" | ")
    rows = [dict(zip(names, line.strip("| ").split(" | "), strict=True)) for line in lines]
    assert [(row["epochs"], row["privacy"]) for row in rows] == [
        ("10", "noise1"),
        ("10", "eps3"),
        ("20", "noise1"),
        ("20", "eps3"),
    ]
    for row in rows:
        one = [f"{key}={row[key]}" for key in ("epochs", "privacy")]
        said = json.loads(command("epsilon", "dataset=adult", *one, *nowhere).out[-1])
        assert row["steps"] == f"{said['steps']:,}"
        assert row["noise multiplier"] == f"{said['noise_multiplier']:.4g}"
        for name in ("rdp", "pld"):
            assert 0 <= float(row[f"epsilon ({name.upper()})"]) - said[name] < 0.01
        assert float(row["delta"]) == said["delta"]


def test_too_little_noise_is_distinguished_from_none(command, nowhere):
    words = ["epsilon", "dataset=adult", "privacy=noise1", "privacy.noise_multiplier=0.1,1"]
    _, _, little, enough, *_ = command(*words, *nowhere).out
    assert "| too little noise | too little noise |" in little
    assert "too little" not in enough


def test_a_table_says_what_has_no_epsilon_and_which_unit_the_others_protect(command, nowhere):
    words = ["epsilon", "dataset=digits,adult", "method=sgd,fairlens,raco,dpsgd"]
    lines = {tuple(line.split(" | ")[:2]): line for line in command(*words, *nowhere).out}
    assert "| not private | not private |" in lines["| digits", "sgd"]
    assert "| no proof | no proof |" in lines["| adult", "fairlens"]
    assert "fairlens is defined for exactly 2 groups" in lines["| digits", "fairlens"]
    users = ["users=iid", "users.number=100", "batch_size=10"]
    words = ["epsilon", "dataset=digits", "model=logistic", "epochs=1,2"]
    _, _, *lines, _, _ = command(*words, *nowhere).out
    assert all(line.endswith(" 1e-05 |") for line in lines)
    _, _, *lines, _, terms = command(*words, *users, *nowhere).out
    assert all(line.endswith(" 1e-05 (per user) |") for line in lines)
    assert ", per user, add-or-remove adjacency, " in terms
    (*_, last) = command("epsilon", "dataset=adult", "method=sgd,fairlens", *nowhere).out
    assert last.startswith("| fairlens")
    sampled = ["sampler=poisson,allocation", "batch_size=512", "privacy.accountant=pld"]
    (*_, terms) = command("epsilon", "dataset=dutch", *sampled, *nowhere).out
    assert ", Poisson batches or randomly allocated batches, proven." in terms


@pytest.mark.slow
def test_a_sweep_may_be_over_experiments(command, nowhere, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/a.yaml").write_text("batch_size: 100\nepochs: 1")
    (tmp_path / "experiment/b.yaml").write_text("defaults: [override /privacy: eps1]")
    swept = ["+experiment=a,b", "epochs=2,3"]
    done = command("epsilon", *swept, *nowhere, "--config-dir", tmp_path)
    assert (done.code, done.err) == (0, [])
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in done.out[2:6]]
    assert [row[:3] for row in rows] == [
        *(["a", "2", "30"], ["a", "3", "45"], ["b", "2", "12"], ["b", "3", "18"])
    ]
    assert [float(row[6]) for row in rows] == pytest.approx([3, 3, 1, 1], abs=0.01)
