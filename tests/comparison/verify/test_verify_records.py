"""A record that does not follow from its settings is found, or that retraining does not give."""

import json
import warnings
from dataclasses import replace

import pytest

from dpbench.cli.main import main
from dpbench.comparison.verify.command import verify
from dpbench.comparison.verify.records import (
    _epsilons_of_ledger,
    _planned,
    _same_ledger,
    contradictions,
    differences_of_rerun,
    equal,
    wrong_metrics,
)
from dpbench.runs.execution.launcher import Failure
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import parse, read
from dpbench.runs.records.record import Record, checksum

BOUNDS = ("membership_advantage", "true_positive_rate", "reconstruction")
SMALL = ["epochs=2", "model=logistic", "batch_size=256", "threads=1"]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return read(
        load_or_run(run_config([*SMALL, f"results_dir={tmp_path_factory.mktemp('results')}"]))
    )


def changed(record: Record, part: str, **values) -> Record:
    plain = json.loads(record.json())
    plain[part] |= values
    del plain["checksum"]
    return parse(json.dumps(plain | {"checksum": checksum(plain)}), "changed")


@pytest.mark.parametrize("groups", [["model"], ["dataset"], ["dataset", "model"]])
def test_a_record_without_settings_of_its_data_or_model_is_found(record, groups, tmp_path):
    config = {key: part for key, part in record.config.items() if key not in groups}
    replace(record, config=config).save(tmp_path)
    _, problems = verify([f"results_dir={tmp_path}", "rerun=1"])
    said = f"has no settings of its {' and '.join(groups)}, so it cannot be verified."
    again = f"cannot be retrained: it has no settings of its {' and '.join(groups)}."
    found = [p.description for p in problems if "uncommitted" not in p.description]
    assert found == [said, again]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"test/accuracy": 0.5}, "has test/accuracy=0.5, but the rest of it gives 0."),
        ({"test/accuracy/3": 1.0}, "has test/accuracy_gap=0."),
        ({"test/ece": 0.001}, "has test/ece=0.001, but the rest of it gives 0."),
        ({"test/mce": 0.0}, "has test/mce=0.0, but the rest of it gives 0."),
    ],
)
def test_a_metric_that_the_rest_of_the_record_contradicts_is_found(record, values, what):
    assert not [*wrong_metrics(record)]
    found = [*wrong_metrics(changed(record, "metrics", **values))]
    assert any(what in problem for problem in found)


def test_an_accuracy_beyond_those_of_all_groups_is_found(record):
    false = changed(replace(record, calibration={}), "metrics", **{"test/accuracy": 1.0})
    assert [*wrong_metrics(false)] == ["has test/accuracy=1.0, which no mean of its groups can be."]


@pytest.mark.parametrize(
    ("part", "values", "what"),
    [
        ("privacy", {"pld": 0.5}, "has pld=0.5, but its ledger gives"),
        (
            "privacy",
            {"attacks": dict.fromkeys(BOUNDS, 1e-5)},
            "has reconstruction=1e-05, but its ledger gives 0.00",
        ),
        ("privacy", {"guarantee": "none"}, "has guarantee=none"),
        ("privacy", {"delta": 0.5}, "has delta=0.5"),
        ("privacy", {"ledger": []}, "has another ledger than its settings"),
        ("privacy", {"arithmetic": "secure"}, "has arithmetic=secure, but its settings give float"),
        ("privacy", {"unit": "user"}, "has unit=user"),
        ("privacy", {"adjacency": "zero out one example"}, "has adjacency=zero out"),
        ("privacy", {"noise_multiplier": 9.0}, "has noise_multiplier=9.0"),
        ("privacy", {"sample_rate": 1e-9}, "has sample_rate=1e-09"),
        ("privacy", {"steps": 1}, "has steps=1"),
        ("privacy", {"claimed_by": "gdp"}, "has claimed="),
        ("privacy", {"claimed_by": "faith"}, "settings that this version cannot run"),
        ("privacy", {"audit": {"epsilon": 0.1}}, "has the bound of an audit"),
        ("covered", {"metrics": True}, "says that its epsilon covers metrics"),
        ("config", {"epochs": 3}, "has another ledger than its settings"),
        (
            "config",
            {"optimizer": {"_target_": "shutil.rmtree"}},
            "settings that this version cannot run",
        ),
        ("provenance", {"commit": "0123456789ab+"}, "uncommitted changes"),
    ],
)
def test_false_statements_in_a_record_are_found(record, part, values, what):
    assert any(what in found for found in contradictions(changed(record, part, **values)))


@pytest.mark.parametrize(
    ("group", "name"), [("dataset", "adult"), ("model", "mlp"), ("method", "dpsgd_f")]
)
def test_an_option_that_a_record_does_not_have_the_settings_of_is_found(record, group, name):
    choices = record.config["choices"] | {group: name}
    found = contradictions(changed(record, "config", choices=choices))
    named = f"names {group}={name}, but its settings are of dpbench."
    assert any(one.startswith(named) for one in found)


def test_an_audit_s_ledger_is_not_taken_for_that_of_a_run_on_data(record):
    """A ledger of its own, with the epsilons that follow from it, is what an audit's record has."""
    ledger = json.loads(json.dumps(record.privacy["ledger"]))
    ledger[0]["releases"][0]["mechanism"]["noise_multiplier"] = 10.0
    epsilons = _epsilons_of_ledger({**record.privacy, "ledger": ledger})
    forged = {"ledger": ledger, "audit": {"epsilon": 0.1, "confidence": 0.95}, **epsilons}
    found = [*contradictions(changed(record, "privacy", **forged))]
    assert any("has another ledger than its settings" in one for one in found)
    assert any("has the bound of an audit, but its data are not canaries" in one for one in found)


def test_a_diverged_or_a_sound_record_has_nothing_to_find(record):
    found = contradictions(diverged(record, epochs=2))
    assert "diverged, but has metrics that are numbers." in [*found]
    clean = changed(record, "provenance", commit="0123456789ab")
    assert list(contradictions(clean)) == []


def test_a_run_that_diverged_states_all_planned_steps_and_ended_with_one_of_its_epochs(record):
    nothing = dict.fromkeys(record.metrics, float("nan"))
    assert not any("history" in one for one in found_in(diverged(record, 1, metrics=nothing)))
    for epochs in (0, 3):
        said = f"has a history of {epochs} epochs, and its settings are of 2."
        assert said in found_in(diverged(record, epochs, metrics=nothing))
    ledger = json.loads(json.dumps(record.privacy["ledger"]))
    ledger[0]["times"] = 1
    privacy = {**record.privacy, "ledger": ledger, "steps": 1}
    shorter = diverged(record, 1, metrics=nothing, privacy=privacy | _epsilons_of_ledger(privacy))
    assert any("has another ledger than its settings" in one for one in found_in(shorter))


def found_in(record) -> list[str]:
    return [*contradictions(record)]


def diverged(record, epochs: int, **parts):
    """The record as of a run that diverged, with a history of so many epochs."""
    plain = json.loads(record.json()) | {"status": "diverged"} | parts
    del plain["checksum"]
    losses = plain["history"]["train/loss"]
    plain["history"]["train/loss"] = (losses * 2)[:epochs]
    return parse(json.dumps(plain | {"checksum": checksum(plain)}), "forged")


def test_a_record_on_canaries_is_that_of_an_audit_and_has_no_metrics(record):
    """No settings describe the steps of an audit, so none would bound its ledger."""
    choices = record.config["choices"] | {"dataset": "canaries"}
    found = contradictions(changed(record, "config", choices=choices))
    assert "names canaries as its data, but is not a record of an audit." in [*found]


def test_the_epsilons_of_an_audit_follow_from_its_ledger(tmp_path, capsys, monkeypatch):
    words = ["audit", "canaries=100", "epochs=1", "game=step", f"results_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["dpbench", *words])
    main()
    capsys.readouterr()
    (path,) = (tmp_path / "runs").glob("*.json")
    audited = changed(parse(path.read_text(), "audit"), "provenance", commit="0123456789ab")
    assert list(contradictions(audited)) == []
    (found,) = contradictions(changed(audited, "privacy", pld=0.5))
    assert "has pld=0.5, but its ledger gives" in found


@pytest.mark.slow
def test_warnings_of_plans_are_not_repeated(tmp_path):
    weak = [*SMALL, "privacy.delta=0.01", f"results_dir={tmp_path}"]
    with pytest.warns(UserWarning, match="is above 1/n"):
        made = read(load_or_run(run_config(weak)))
    _planned.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not [found for found in contradictions(made) if "uncommitted" not in found]
        assert list(differences_of_rerun(made)) == []


@pytest.mark.slow
def test_a_run_trained_again_has_the_same_bits_and_a_changed_one_has_not(record):
    assert list(differences_of_rerun(record)) == []
    other = changed(record, "metrics", **{"test/accuracy": 0.5})
    (what,) = differences_of_rerun(other)
    assert what == "has different metrics when retrained."
    other = changed(changed(record, "provenance", torch="1.0"), "history", **{"train/loss": [1.0]})
    (what,) = differences_of_rerun(other)
    assert "torch was 1.0 and is" in what
    other = changed(record, "provenance", metrics={"cost": "my-clips 0.1.0"})
    (what,) = differences_of_rerun(changed(other, "metrics", **{"test/cost": 0.5}))
    assert what == (
        "has different metrics when retrained (metric cost was of my-clips 0.1.0 and is of none)."
    )


def test_a_record_of_a_plugin_that_is_gone_names_what_to_install(record):
    built = {"target": "my_clips.soft", "package": "my-clips", "version": "0.1.0"}
    other = changed(record, "provenance", built={"method": built})
    *_, found = contradictions(changed(other, "config", method={"_target_": "my_clips.soft"}))
    assert "cannot run (method was of my-clips 0.1.0 and is of none): method._target_=" in found


def test_a_record_in_a_table_is_verified_behind_another_of_its_run(record, tmp_path):
    record.save(tmp_path)
    forged = changed(record, "privacy", pld=0.5)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/a.records.jsonl").write_text(f"{record.json()}\n{forged.json()}\n")
    done, problems = verify([f"results_dir={tmp_path}"])
    assert done.startswith("verified 2 records and 1 table")
    assert ("tables/a.records.jsonl, line 2", "has pld=0.5,") in [
        (p.source, p.description[:12]) for p in problems
    ]


def test_a_run_that_cannot_be_trained_again_is_not_counted(record, tmp_path, monkeypatch):
    record.save(tmp_path)
    monkeypatch.setattr("dpbench.verify.records.attempt", lambda run: Failure("out of layers"))
    done, problems = verify([f"results_dir={tmp_path}", "rerun=1"])
    assert "and trained 0 again" in done
    assert problems[-1].description == "cannot be retrained: out of layers"


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [
        ("decays", [0.5, 0.9801], True),  # as another processor may find it
        ("weights", [0.251, 0.1], True),
        ("decays", [0.5, 0.9], False),
        ("decays", [0.5], False),
        ("noise_multiplier", 3.002, True),
        ("noise_multiplier", 3.1, False),
    ],
)
def test_a_matrix_that_is_searched_for_may_differ_in_its_last_digits(field, value, same):
    mechanism = {"noise_multiplier": 3.0, "decays": [0.5, 0.98], "weights": [0.25, 0.1]}
    one, other = ([{"times": 4, "releases": [m]}] for m in (mechanism, mechanism | {field: value}))
    assert _same_ledger(one, other) == same


def test_two_buffers_of_nearly_one_decay_may_share_their_weight_in_any_way():
    """As two processors found them, for 380 steps in cycles of 38."""
    decays, others = [0.2158, 0.2216, 0.95247, 0.95254], [0.2146, 0.2369, 0.95247, 0.95253]
    one = {"noise_multiplier": 3.0, "decays": decays, "weights": [0.1232, 0.0119, 0.377, 0.01082]}
    other = one | {"decays": others, "weights": [0.1224, 0.0126, 0.3768, 0.01102]}
    assert _same_ledger(one, other)
    assert not _same_ledger(one, other | {"weights": [0.1224, 0.0126, 0.3668, 0.01102]})


def test_nan_is_the_same_as_nan():
    assert equal({"a": [float("nan"), 1.0]}, {"a": [float("nan"), 1.0]})
    assert not equal({"a": [float("nan"), 1.0]}, {"a": [1.0, 1.0]})
    assert not equal([1.0], [1.0, 2.0])
