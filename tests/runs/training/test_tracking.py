"""What trackers are told."""

import math
from pathlib import Path

import pytest

from dpbench.comparison.dashboard.track import track
from dpbench.privacy.ledger import Ledger
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.records.digest import digest, group_of
from dpbench.runs.records.trackers.tracker import RunInfo
from dpbench.runs.training.tracking import NOT_COVERED, Spending, Tracking, log_table
from dpbench.system.errors import UserError
from tests.runs.training.notes import Notes

RUNS = "dpbench.execution.load_or_run"

pytestmark = pytest.mark.usefixtures("one_picture")


@pytest.mark.slow
def test_a_run_is_told_epoch_by_epoch_with_what_it_spent(tell, tmp_path):
    notes = Notes()
    record = tell(notes)
    assert notes.duties() == ["start", *["log"] * 3, "figure", "finish"]
    budget = "target_epsilon=3.0"
    assert notes.calls[0][1] == RunInfo(
        digest=record.digest,
        name=f"dpsgd digits {budget} seed=0 batch_size=512 epochs=3",
        group=f"digits/dpsgd/{budget}/{group_of(record.config)[:8]}",
        tags=("digits", "logistic", "dpsgd", budget),
        config=record.config,
        folder=tmp_path / "tracking",
        terms="Epsilons: delta 1e-05, per example, add-or-remove adjacency, Poisson batches, "
        f"proven. {NOT_COVERED}",
    )
    steps, numbers = zip(*(told for duty, *told in notes.calls if duty == "log"), strict=True)
    per_epoch = record.privacy["steps"] // 3
    assert steps == (per_epoch, 2 * per_epoch, 3 * per_epoch)
    assert [n["train/loss"] for n in numbers] == record.history["train/loss"]
    spent = [n["privacy/epsilon_rdp"] for n in numbers]
    assert spent == sorted(spent)
    assert spent[0] > 0
    assert spent[-1] == pytest.approx(record.privacy["rdp"])
    name, png, columns = notes.calls[-2][1:]
    assert (name, png) == ("reliability", b"\x89PNG")
    assert {"confidence", "accuracy", "count"} < {*columns}
    assert notes.calls[-1][1].json() == record.json()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "epsilon"),
    [
        (["method=sgd"], math.inf),
        (["sampler=shuffled", "privacy=noise1"], None),
        (["trial=a", "validation=0.2", "score_noise_multiplier=10"], None),
    ],
)
def test_no_epsilon_is_told_where_none_is_proven(overrides, epsilon, tell):
    notes = Notes()
    tell(notes, *overrides)
    logs = [numbers for duty, _, *rest in notes.calls if duty == "log" for numbers in rest]
    assert [n.get("privacy/epsilon_rdp") for n in logs] == [epsilon] * 3
    assert notes.calls[0][1].terms == NOT_COVERED


@pytest.mark.slow
def test_diagnostics_are_told_by_their_own_steps(tell):
    notes = Notes()
    record = tell(notes, "diagnostics=bias", "diagnostics.every=4")
    measured = [(s, n["step/bias"]) for duty, s, *rest in notes.calls if duty == "log"
                for n in rest if "step/bias" in n]  # fmt: skip
    kept = record.diagnostics
    assert measured == list(zip(kept["step"], kept["step/bias"], strict=True))


@pytest.mark.slow
def test_curves_of_accuracy_calibration_and_groups_are_told_while_the_run_goes_on(tell):
    notes = Notes()
    record = tell(notes, "diagnostics=curves")
    rows = [(step, n["test/ece"]) for duty, step, *rest in notes.calls if duty == "log"
            for n in rest if "test/ece" in n]  # fmt: skip
    measured = record.diagnostics
    assert "tested/accuracy/3" in measured
    assert rows == list(zip(measured["step"], measured["tested/ece"], strict=True))
    logged = [numbers for duty, _, *rest in notes.calls if duty == "log" for numbers in rest]
    epochs = [place for place, numbers in enumerate(logged) if "train/loss" in numbers]
    # At the start, and before each epoch's own row.
    curves = [place for place, numbers in enumerate(logged) if "test/ece" in numbers]
    assert curves == [0, *(place - 1 for place in epochs)]


@pytest.mark.slow
def test_the_metrics_of_the_end_are_told_at_each_tenth_and_change_nothing(tell):
    alone = tell(Notes(), "epochs=8", "ema_decay=0.9")
    notes = Notes()
    record = tell(notes, "epochs=8", "ema_decay=0.9", "tracker_curves=true", "again=true")
    told = [(step, numbers) for duty, step, *rest in notes.calls if duty == "log"
            for numbers in rest if "test/ece" in numbers]  # fmt: skip
    assert record.privacy["steps"] == 24
    assert [step for step, _ in told] == [3, 5, 8, 10, 12, 15, 17, 20, 22]
    measured = {name for name in record.metrics if name.startswith("test/")}
    assert all(numbers.keys() == measured for _, numbers in told)
    assert {"test/mce", "test/accuracy/3"} < measured
    for part in ("metrics", "history", "diagnostics", "privacy", "calibration"):
        assert repr(getattr(record, part)) == repr(getattr(alone, part))


@pytest.mark.slow
def test_the_last_epsilon_told_of_a_run_that_ends_early_is_that_of_its_record(tell):
    notes = Notes()
    record = tell(
        notes, "epochs=2", "optimizer.lr=3e38", "privacy=noise1", "privacy.noise_multiplier=1000"
    )
    assert len(record.history["train/loss"]) == 1
    rows = rows_of(notes)
    assert rows[max(rows)] == {"privacy/epsilon_rdp": pytest.approx(record.privacy["rdp"])}
    assert max(rows) == record.privacy["steps"]


@pytest.mark.slow
def test_before_a_private_temperature_is_fitted_metrics_are_told_as_those_without_it(tell):
    notes = Notes()
    tell(notes, *TEMPERED, "tracker_curves=true")
    told = [numbers for duty, _, *rest in notes.calls if duty == "log" for numbers in rest]
    curves = [numbers for numbers in told if "test/loss" in numbers]
    assert len(curves) > 3
    assert all("test/ece_unscaled" in n and "test/ece" not in n for n in curves)


@pytest.mark.slow
@pytest.mark.parametrize("curves", ["diagnostics=curves", "tracker_curves=true"])
def test_a_curve_has_the_name_of_its_metric(curves, tell, table, tmp_path, monkeypatch):
    live, later = Notes(), Notes()
    record = tell(live, *table, curves)
    monkeypatch.setattr(RunConfig, "trackers", {"notes": later})
    track([f"results_dir={tmp_path}"])
    for notes in (live, later):
        told = {name for row in rows_of(notes).values() for name in row if "test" in name}
        assert told <= record.metrics.keys()
        assert {"test/accuracy/woman", "test/accuracy/man", "test/mce"} <= told
    if curves == "diagnostics=curves":
        last = rows_of(live)[record.privacy["steps"]]
        assert last["test/accuracy/woman"] == record.metrics["test/accuracy/woman"]


@pytest.fixture
def table(tmp_path):
    """A table of people, whose first group by number is not the first by name or size."""
    rows = [f"{i % 7},{'woman' if i % 3 else 'man'},{(i // 2) % 2}" for i in range(90)]
    (tmp_path / "people.csv").write_text("\n".join(["age,sex,y", *rows, ""]))
    return ["dataset=csv", f"dataset.file={tmp_path / 'people.csv'}", "dataset.target=y",
            "dataset.group=sex", "batch_size=16", "epochs=1"]  # fmt: skip


def test_metrics_of_one_s_own_data_are_told_only_at_the_end_unless_asked_for(table):
    assert run_config([]).tracks_curves
    assert run_config(["dataset=digits_unbalanced"]).tracks_curves
    assert not run_config(table).tracks_curves
    assert run_config([*table, "tracker_curves=true"]).tracks_curves
    assert not run_config(["diagnostics=curves"]).tracks_curves
    assert run_config(["tracker_curves=true"]).digest == run_config([]).digest
    with pytest.raises(UserError, match="tracker_curves"):
        run_config(["tracker_curves=often"])


@pytest.mark.slow
def test_epochs_of_diagnostics_are_told_with_their_epoch(tell):
    notes = Notes()
    record = tell(
        notes, "diagnostics=misalignment", "diagnostics.every=1000", "diagnostics.groups=[0,1]"
    )
    told = [n["epoch/loss/0"] for duty, _, *rest in notes.calls if duty == "log"
            for n in rest if "epoch/loss/0" in n]  # fmt: skip
    assert told == record.diagnostics["epoch/loss/0"]


@pytest.mark.slow
def test_a_run_of_a_table_is_in_its_group(tell):
    notes = Notes()
    tell(notes, "+table=demo", "method=dpsgd", "epochs=1")
    info = notes.calls[0][1]
    assert info.group.startswith("demo/dpsgd/")
    assert info.tags[0] == "demo"


def rows_of(notes):
    """All numbers told of each step."""
    rows = {}
    for duty, step, *rest in notes.calls:
        if duty == "log":
            rows.setdefault(step, {}).update(*rest)
    return rows


TEMPERED = ["temperature=private", "temperature.share=0.3"]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], ["diagnostics=curves"], ["method=sgd"], TEMPERED])
def test_a_finished_record_is_told_like_its_run(overrides, tell, tmp_path, monkeypatch):
    live, later = Notes(), Notes()
    tell(live, *overrides)
    monkeypatch.setattr(RunConfig, "trackers", {"notes": later})
    assert track([f"results_dir={tmp_path}"]) == "1 run logged."
    assert sorted(later.duties()) == sorted([*live.duties(), "table"])
    assert later.calls[0] == live.calls[0]
    one, other = rows_of(live), rows_of(later)
    assert one.keys() == other.keys()
    assert all(one[step] == pytest.approx(other[step], nan_ok=True) for step in one)
    # Ten thousand pictures would take half an hour, and trackers draw from the numbers.
    ((_, png, _),) = [told for duty, *told in later.calls if duty == "figure"]
    assert png is None


def test_records_are_selected_by_their_settings_and_logged_once(tell, tmp_path, monkeypatch):
    tell(Notes())
    tell(Notes(), "method=sgd")
    notes = Notes()
    monkeypatch.setattr(RunConfig, "trackers", {"notes": notes})
    folder = f"results_dir={tmp_path}"
    assert track([folder, "method=sgd"]) == "1 run logged."
    ((_, name, files),) = [call for call in notes.calls if call[0] == "table"]
    assert (name, files["csv"].count(b"\n")) == ("comparison", 2)
    assert b"dpsgd" not in files["md"]
    assert files["html"].startswith(b"<!doctype html>")
    ((_, sgd),) = [call for call in notes.calls if call[0] == "start"]
    assert "sgd" in sgd.tags
    for wrong in ("dataset=mnist", "~dataset"):
        with pytest.raises(UserError, match="no record has dataset="):
            track([folder, wrong])
    notes.kept = {sgd.digest}
    assert track([folder]) == "1 run logged, and 1 before, which again=true repeats."
    assert track([folder, "again=true"]) == "2 runs logged."


def test_a_run_that_goes_on_is_told_from_its_beginning():
    """As after a checkpoint: two epochs are in the history already."""
    notes = Notes()
    info = RunInfo("abc", "a run", "a group", (), {}, Path())
    tracking = Tracking({"notes": notes}, info)
    spending = Spending(Ledger(), Ledger(), 1e-5, None, steps_per_epoch=7, terms="")
    history = {"train/loss": [3.0, 2.0, 1.0]}
    tracking.update(lambda: spending, history, {}, 21)
    history["train/loss"].append(0.5)
    tracking.update(lambda: spending, history, {}, 28)
    told = [(step, n["epoch"], n["train/loss"]) for duty, step, *rest in notes.calls
            if duty == "log" for n in rest]  # fmt: skip
    assert told == [(7 * epoch, epoch, loss) for epoch, loss in enumerate([3.0, 2.0, 1.0, 0.5], 1)]


def test_a_table_is_logged_by_trackers_that_support_it(tmp_path):
    notes, broken = Notes(), Notes(fails_at="table")
    with pytest.warns(UserWarning, match="tracker=broken failed"):
        log_table({"broken": broken, "notes": notes}, "name", {"md": b"x"}, tmp_path)
    assert notes.calls == [("table", "name", {"md": b"x"})]


def test_several_trackers_can_be_chosen_and_set():
    config = RunConfig.composed(["tracker=[csv,wandb]", "tracker.wandb.project=mine"])
    chosen = config.trackers
    assert list(chosen) == ["csv", "wandb"]
    assert (chosen["wandb"].project, chosen["wandb"].mode) == ("mine", "offline")
    assert config.digest == digest(compose([]))
    assert RunConfig.composed([]).trackers == {}
    with pytest.raises(UserError, match="tracker=wand is unknown: did you mean wandb"):
        compose(["tracker=[csv,wand]"])
