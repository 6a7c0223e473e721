"""Real processes that train on digits, killed where it hurts and at random, and started again."""

import os
from signal import SIGKILL

import pytest

from tests.faults.killed_run import KilledRun

STEPS = 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> str:
    """The record of a run that was never stopped."""
    folder = KilledRun(tmp_path_factory.mktemp("whole"))
    assert folder.after("at_once", 1) == [0]
    assert folder.steps == list(range(STEPS))
    return folder.record


@pytest.fixture
def folder(tmp_path) -> KilledRun:
    return KilledRun(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "number", "after"),
    [
        ("replace", 4, False),  # the file is whole, and not yet in its place
        ("replace", 3, True),  # it is in its place, and the oldest one not yet gone
        ("fsync", 4, False),  # it may be there in part
    ],
)
def test_a_run_killed_while_writing_a_checkpoint_resumes(folder, whole, name, number, after):
    *killed, last = folder.after("at_a_call", name, number, after)
    assert len(killed) >= 3
    assert set(killed) == {-SIGKILL}
    assert last == 0
    assert folder.record == whole


@pytest.mark.parametrize("seed", range(int(os.environ.get("FAULT_ROUNDS", "1"))))
def test_a_run_killed_at_random_resumes(folder, whole, seed):
    *killed, last = folder.after("at_random", seed, str(folder.results / "checkpoints"), 0.02)
    assert killed
    assert last == 0
    assert folder.record == whole


def test_of_two_processes_one_waits_and_no_step_is_repeated(folder, whole):
    assert folder.after("at_once", 2) == [0, 0]
    assert folder.steps == list(range(STEPS))
    assert folder.record == whole


@pytest.mark.long
def test_a_waiting_process_takes_over_from_a_killed_one(folder, whole):
    assert folder.after("the_first", str(folder.results / "checkpoints")) == [-SIGKILL, 0]
    assert folder.record == whole
    assert folder.steps.count(0) == 1
