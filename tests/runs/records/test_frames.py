import math

from dpbench.runs.records.epsilon import released
from dpbench.runs.records.frames import frame
from tests.runs.records.plain_record import PLAIN, record


def test_a_frame_has_a_row_per_record_and_a_column_per_number():
    other = {**PLAIN, "seed": 4, "method": {"bound": 1.0, "variant": "paper"}}
    rows = frame([record(), record(config=other, status="diverged")]).to_dict("records")
    assert [row["seed"] for row in rows] == [0, 4]
    assert [row["variant"] for row in rows] == ["corrected", "paper"]
    assert [row["status"] for row in rows] == ["complete", "diverged"]
    assert {row["method"] for row in rows} == {"dpsgd"}
    assert rows[0]["test/accuracy"] == 0.75
    assert rows[0]["test/loss/3"] == rows[0]["privacy/rdp"] == math.inf
    assert "privacy/ledger" not in rows[0]
    assert not any(isinstance(value, dict | list) for value in rows[0].values())


def test_settings_that_differ_are_columns_and_methods_without_variants_are_corrected():
    longer = record(config={**PLAIN, "epochs": 7, "seed": 4})
    rows = frame([record(), longer])
    assert rows["epochs"].tolist() == [PLAIN["epochs"], 7]
    assert rows["digest"].nunique() == 2
    assert "epochs" not in frame([record(), longer], settings=["batch_size"])
    assert "epochs" not in frame([longer])
    plain = {**PLAIN, "method": {"_target_": "dpbench.methods.sgd.sgd"}}
    assert frame([record(config=plain)])["variant"].tolist() == ["corrected"]


def test_audits_and_how_runs_were_executed_are_left_out_unless_asked_for():
    audit = record(config={**PLAIN, "seed": 5})
    audit.privacy["audit"] = {"epsilon": 0.5}
    logged = {**PLAIN, "choices": PLAIN["choices"] | {"tracker": "csv"}, "seed": 6}
    all_records = [record(), audit, record(config=logged)]
    assert frame(all_records)["seed"].tolist() == [PLAIN["seed"], 6]
    assert "choices.tracker" not in frame(all_records)
    both = frame(all_records, audits=True)
    assert both["status"].tolist() == ["complete", "audit", "complete"]


def test_a_trial_has_no_epsilon_of_its_own_and_what_attacks_achieve_is_a_column_of_others():
    trial = record(config={**PLAIN, "seed": 5, "trial": "abc"})
    rows = frame([record(), trial])
    assert rows["privacy/rdp"].notna().tolist() == [True, False]
    assert "one trial of a private search" in rows["privacy/why"][1]
    bounds = {"membership_advantage": 0.2, "true_positive_rate": 0.01, "reconstruction": 0.001}
    bounded, trial = (
        record(config={**PLAIN, **changes}, privacy=record().privacy | {"attacks": bounds})
        for changes in ({"seed": 4}, {"seed": 5, "trial": "abc"})
    )
    rows = frame([record(), bounded, trial])
    for name, value in bounds.items():
        assert rows[name].isna().tolist() == [True, False, True]
        assert rows[name][1] == value
    assert released(trial, trial.statement)["attacks"] is None
