import math

import pytest

from tests.omissions import extra

pytest.importorskip("tensorboard", reason=extra("tracking"))

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dpbench.runs.records.digest import group_of
from dpbench.runs.records.trackers.tensorboard import TensorboardTracker
from dpbench.runs.records.trackers.tracker import RunInfo


def events(folder):
    kept = EventAccumulator(str(folder))
    kept.Reload()
    return kept


@pytest.mark.slow
def test_a_run_is_in_the_folder_of_its_method(tracked, tmp_path):
    record = tracked("tensorboard")
    group = f"digits/dpsgd/target_epsilon=3.0/{group_of(record.config)[:8]}"
    kept = events(tmp_path / "tracking" / "tensorboard" / group / record.digest)
    steps = record.privacy["steps"]
    losses = [(event.step, event.value) for event in kept.Scalars("train/loss")]
    expected = zip((steps // 2, steps), record.history["train/loss"], strict=True)
    assert losses == [(step, pytest.approx(loss)) for step, loss in expected]
    (accuracy,) = kept.Scalars("test/accuracy")
    assert accuracy.value == pytest.approx(record.metrics["test/accuracy"])
    assert kept.Tags()["images"] == ["reliability"]
    assert "config/text_summary" in kept.Tags()["tensors"]


def test_a_run_that_goes_on_has_each_step_once_and_a_table_is_a_text(interrupted, tmp_path):
    interrupted(TensorboardTracker())
    kept = events(tmp_path / "tensorboard" / "table" / "dpsgd" / "abc")
    assert [event.step for event in kept.Scalars("train/loss")] == [10, 20, 30]
    assert math.isnan(kept.Scalars("train/loss")[0].value)
    assert [event.step for event in kept.Scalars("step/bias")] == [0]
    TensorboardTracker().table("some", {"md": b"# Some", "csv": b""}, tmp_path)
    kept = events(tmp_path / "tensorboard" / "tables" / "some")
    assert kept.Tags()["tensors"] == ["some/text_summary"]


@pytest.mark.parametrize("name", ["n" * 300, "é" * 300, "..", ".", ""])
def test_a_data_set_with_any_name_has_a_folder_within_that_of_the_tracker(name, tmp_path):
    info = RunInfo("abc", "a run", f"{name}/dpsgd/eps1", (), {}, tmp_path / "tracking")
    TensorboardTracker().start(info).writer.close()
    (folder,) = tmp_path.rglob("abc")
    assert len(folder.relative_to(tmp_path / "tracking" / "tensorboard").parts) == 4
