"""No run fails by its trackers, and none of its rows is lost."""

import pytest

from dpbench.cli import commands
from dpbench.comparison.dashboard.track import track
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.training.tracking import Tracking
from dpbench.system import lock
from tests.runs.training.notes import BY_EPOCH, SMALL, Notes

pytestmark = pytest.mark.usefixtures("one_picture")


@pytest.mark.slow
def test_no_run_fails_by_the_file_of_its_curves(tell, tmp_path):
    (tmp_path / "tracking").write_text("not a folder")
    assert tell(Notes(), "epochs=8", "tracker_curves=true").status == "complete"


@pytest.mark.parametrize("duty", ["start", "finish"])
def test_a_run_that_a_tracker_failed_at_is_not_counted_as_logged(tell, tmp_path, monkeypatch, duty):
    tell(Notes())
    monkeypatch.setattr(RunConfig, "trackers", {"notes": Notes(duty)})
    failures = []
    with pytest.warns(UserWarning, match="tracker=notes failed"):
        said = track([f"results_dir={tmp_path}"], failures.append)
    assert said == "0 runs logged, and 1 not or in part, as a tracker failed."
    assert failures == [1]


def test_the_command_ends_with_code_1_where_a_tracker_failed(tell, tmp_path, monkeypatch, capsys):
    tell(Notes())
    monkeypatch.setattr(RunConfig, "trackers", {"notes": Notes("finish")})
    with (
        pytest.warns(UserWarning, match="tracker=notes failed"),
        pytest.raises(SystemExit, match="1"),
    ):
        commands.track([f"results_dir={tmp_path}"])
    assert "1 not or in part, as a tracker failed.\n" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("duty", ["start", "log", "figure", "finish"])
def test_a_tracker_that_fails_is_one_warning_and_the_run_is_what_it_is(duty, tell, tmp_path):
    sound = tell(Notes())
    notes = Notes(fails_at=duty)
    with pytest.warns(UserWarning, match="tracker=notes") as said:
        record = tell(notes, "again=true")
    assert [str(warning.message) for warning in said] == [
        "tracker=notes failed and is disabled, and the run continues: OSError, no luck"
    ]
    assert notes.duties().count(duty) == 1
    assert notes.duties()[-1] == duty, "it was told more"
    assert (record.metrics, record.history) == (sound.metrics, sound.history)


@pytest.mark.slow
def test_a_failing_tracker_does_not_affect_the_others(monkeypatch, tmp_path):
    sound = Notes()
    both = {"broken": Notes(fails_at="start"), "sound": sound}
    monkeypatch.setattr(RunConfig, "trackers", both)
    with pytest.warns(UserWarning, match="tracker=broken failed"):
        load_or_run(run_config([*SMALL, BY_EPOCH, f"results_dir={tmp_path}"]))
    assert sound.duties() == ["start", *["log"] * 3, "figure", "finish"]


def test_a_tracker_that_is_not_installed_says_what_to_install(monkeypatch, tmp_path):
    tracker = Notes()
    tracker.start = lambda about: (_ for _ in ()).throw(ImportError("No module named 'wandb'"))
    monkeypatch.setattr(RunConfig, "trackers", {"wandb": tracker})
    with pytest.warns(UserWarning, match=r"pip install 'dpbench-suite\[tracking\]'"):
        load_or_run(run_config([*SMALL, f"results_dir={tmp_path}"]))


def table_of(folder):
    (path,) = set(folder.glob("tracking/csv/*.csv")) - set(folder.glob("*/csv/*-reliability.csv"))
    return path.read_text()


@pytest.fixture
def tracked(tmp_path):
    """A run that is put away after each step, and the table that it leaves when nothing ends it."""
    small = [*SMALL, "method=sgd", "checkpoint_minutes=1e-9", "tracker=csv", "tracker_curves=true"]
    load_or_run(run_config([*small, f"results_dir={tmp_path / 'whole'}"]))
    return [*small, f"results_dir={tmp_path / 'ended'}"], table_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["evaluation.predict", "trainer.privacy_statement"])
def test_a_run_that_ends_after_its_last_step_loses_no_row(where, tracked, tmp_path, monkeypatch):
    overrides, whole = tracked
    with monkeypatch.context() as patch:
        patch.setattr(f"dpbench.training.{where}", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            load_or_run(run_config(overrides))
    load_or_run(run_config(overrides))
    assert table_of(tmp_path / "ended") == whole


@pytest.mark.slow
def test_a_run_that_ends_before_its_trackers_is_tracked_later(tracked, tmp_path, monkeypatch):
    overrides, whole = tracked
    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "finish", lambda *_: 1 / 0)
        # As a process that is killed, which removes no lock.
        patch.setattr(lock, "_remove", lambda *_: None)
        with pytest.raises(ZeroDivisionError):
            load_or_run(run_config(overrides))
    assert table_of(tmp_path / "ended") != whole
    load_or_run(run_config(overrides))
    assert table_of(tmp_path / "ended") == whole
    assert not (tmp_path / "ended" / "checkpoints").exists()
