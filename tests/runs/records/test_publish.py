import json
from dataclasses import replace

import pytest

from dpbench.runs.records.publish import publish
from dpbench.runs.records.reading import parse
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

PRIVACY = {
    **{"rdp": 2.0, "pld": 1.5, "gdp": None, "claimed": 2.0, "delta": 1e-6, "ledger": []},
    **{"guarantee": "proven", "why": "made up", "noise_multiplier": 1.0, "steps": 3},
}


def made(seed: int, arithmetic: str = "secure") -> Record:
    choices = {"dataset": "digits", "model": "mlp", "method": "dpsgd"}
    return Record(
        config={"seed": seed, "choices": choices, "method": {"bound": 1.0}},
        metrics={"test/accuracy": 0.9, "train_set/loss": 0.123, "train_set/loss/3": 0.456},
        privacy=PRIVACY | {"arithmetic": arithmetic},
        provenance={"device": "cpu", "seconds": 1.23, "peak_memory_mib": 321, "resumed": 7}
        | {"physical_batch_size": 101, "graph": "246 steps and 0 sums replayed"},
        status="complete",
        history={"train/loss": [0.789]},
        diagnostics={"step": [1]},
        calibration={
            "bins": {"count": [1], "confidence": [0.5], "accuracy": [1.0]},
            "histogram": {"confidence": [1], "true_class": [1]},
        },
    )


def published(folder, *records) -> list[Record]:
    for record in records:
        record.save(folder)
    path = publish([f"results_dir={folder}", f"out={folder / 'out.jsonl'}"])
    return [parse(line, "x") for line in path.read_text().splitlines()]


def test_neither_seeds_nor_uncovered_parts_are_published(tmp_path):
    (record,) = published(tmp_path, made(31337))
    text = (tmp_path / "out.jsonl").read_text()
    for number in ("31337", "0.123", "0.456", "0.789", "1.23", "321", "7,", "101", "246"):
        assert number not in text
    assert record.config["seed"] is None
    assert record.metrics == {"test/accuracy": 0.9}
    assert record.provenance == {"device": "cpu"}
    assert record.privacy == made(0).privacy
    assert not record.history | record.diagnostics | record.calibration
    assert record.signed


def test_all_runs_are_published_in_no_order_of_their_seeds(tmp_path):
    records = [replace(made(seed), metrics={"test/accuracy": 0.9 - seed / 10}) for seed in range(4)]
    with pytest.warns(UserWarning, match=r"same data set \(4 on digits\).* losses compose"):
        together = published(tmp_path, *records)
    accuracies = [record.metrics["test/accuracy"] for record in together]
    assert sorted(accuracies) == pytest.approx([0.6, 0.7, 0.8, 0.9])
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines == sorted(lines)


def test_metrics_and_finiteness_on_a_validation_split_stay_behind(tmp_path):
    metrics = {"validation/accuracy": 0.8, "validation/noisy_accuracy": 0.7, "test/loss": 1.0}
    (record,) = published(tmp_path, replace(made(0), metrics=metrics))
    assert record.metrics == {"validation/noisy_accuracy": 0.7, "test/loss": 1.0}
    # One held-out example with a huge value makes them infinite, whatever the noise.
    record = replace(made(0), status="diverged")
    config = record.config | {"validation": 0.2, "epochs": 1}
    (of_outputs,) = published(tmp_path / "outputs", replace(record, config=config))
    assert of_outputs.status == "complete"
    config = config | {"epochs": 2}  # it ended after the first, as its parameters were not finite
    (of_parameters,) = published(tmp_path / "parameters", replace(record, config=config))
    assert of_parameters.status == "diverged"
    (of_test_examples,) = published(tmp_path / "tested", record)
    assert of_test_examples.status == "diverged"


def test_the_epsilon_of_a_chosen_trial_is_not_taken_for_that_of_its_search(tmp_path):
    record = made(0)
    trial = replace(record, config=record.config | {"trial": "abc"})
    trial.save(tmp_path)
    out = tmp_path / "out.jsonl"
    publish([f"results_dir={tmp_path}", f"out={out}", f"record={trial.digest}"])
    said = parse(out.read_text(), "x").privacy
    assert said["why"].startswith("made up This is one trial of a private search")
    assert said["rdp"] is said["pld"] is said["gdp"] is said["claimed"] is None
    assert said["refused"].keys() == {"rdp", "pld"}


@pytest.mark.parametrize("of_file", ["checksum", "labels_checksum", "test_checksum"])
def test_the_checksum_of_a_data_file_would_confirm_a_guess_of_its_last_row(tmp_path, of_file):
    record = made(0)
    config = record.config | {"dataset": {of_file: "abcdef0123", "tokenizer_checksum": "abc"}}
    (record,) = published(tmp_path, replace(record, config=config))
    assert record.config["dataset"] == {of_file: None, "tokenizer_checksum": "abc"}


def test_a_trial_of_a_private_search_is_published_only_by_name(tmp_path):
    trials = [made(seed) for seed in range(3)]
    trials = [replace(t, config=t.config | {"trial": f"{k}"}) for k, t in enumerate(trials)]
    assert len(published(tmp_path / "with", *trials, made(7))) == 1
    with pytest.raises(UserError, match="give record=DIGEST"):
        published(tmp_path / "without", *trials)
    arguments = [f"results_dir={tmp_path / 'without'}", f"out={tmp_path / 'one.jsonl'}"]
    publish([*arguments, f"record={trials[1].digest}"])
    (line,) = (tmp_path / "one.jsonl").read_text().splitlines()
    assert parse(line, "x").config["trial"] == "1"
    with pytest.raises(UserError, match="no record of that digest"):
        publish([*arguments, "record=0123456789abcdef"])


def test_seeded_noise_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="noise of 1 of 1 private runs .* noise=secure"):
        published(tmp_path, made(1, "float"))


def test_runs_without_an_epsilon_are_warned_of(tmp_path):
    unbounded = replace(made(0), privacy=made(0).privacy | {"guarantee": "none"})
    with pytest.warns(UserWarning, match="1 of 1 records are of runs without an epsilon"):
        published(tmp_path, unbounded)


@pytest.mark.parametrize("argument", ["outt=x", "out=", "out"])
def test_unknown_and_empty_arguments_are_refused(argument):
    with pytest.raises(UserError, match="out"):
        publish([argument])


def test_a_published_file_can_be_read_by_anything(tmp_path):
    published(tmp_path, made(0))
    fields = json.loads((tmp_path / "out.jsonl").read_text())
    assert fields["config"]["choices"]["method"] == "dpsgd"


def test_a_link_is_not_replaced_by_the_file(tmp_path):
    (tmp_path / "link").symlink_to("/dev/null")
    with pytest.raises(UserError, match="link is not a regular file"):
        publish([f"results_dir={tmp_path}", f"out={tmp_path / 'link'}"])


def test_one_of_several_seeds_is_not_published_unnoticed(tmp_path):
    best, other = made(0), replace(made(1), metrics={"test/accuracy": 0.7})
    other.save(tmp_path)
    best.save(tmp_path)
    arguments = [f"results_dir={tmp_path}", f"out={tmp_path / 'out.jsonl'}"]
    said = r"not all runs .* accuracy 90.0 over 1 of the 2 seeds .* accuracy 80.0 over all"
    with pytest.warns(UserWarning, match=said):
        publish([*arguments, f"record={best.digest}"])
