"""Real processes that train on digits, killed where it hurts and at random, and started again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = 12

pytestmark = pytest.mark.slow


class Folder:
    """A results folder, and the run of twelve steps, put away after each, that goes there."""

    def __init__(self, path: Path):
        usual = ["batch_size=360", "epochs=3", "model.widths=[8]", "method=dpsgd_quantile"]
        more = ["optimizer=adam", "ema_decay=0.9", "schedule=noise_falls", "diagnostics=bias"]
        self.results, self.log = path / "results", path / "steps"
        self.overrides = [*usual, *more, "diagnostics.every=3", "checkpoint_minutes=1e-9"]
        self.overrides.append(f"results_dir={self.results}")

    def after(self, call: str, *arguments) -> list[int]:
        """The exit codes of the processes that a call of `killer.py` has started."""
        asked = json.dumps([self.overrides, str(self.log), *arguments])
        killer = [sys.executable, Path(__file__).with_name("killer.py"), call, asked]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            killer, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    @property
    def files(self) -> list[Path]:
        return [path for path in self.results.rglob("*") if path.is_file()]

    @property
    def record(self) -> str:
        """What is in the only file that is left, but how and where it was carried out."""
        (path,) = self.files
        said = json.loads(path.read_text())
        del said["provenance"], said["checksum"]
        return json.dumps(said)

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps that were made, in order."""
        return [int(line) for line in self.log.read_text().split()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> str:
    """The record of a run that was never stopped."""
    folder = Folder(tmp_path_factory.mktemp("whole"))
    assert folder.after("at_once", 1) == [0]
    assert folder.steps == list(range(STEPS))
    return folder.record


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "number", "after"),
    [
        ("replace", 4, False),  # the file is whole, and not yet in its place
        ("replace", 3, True),  # it is in its place, and the oldest one not yet gone
        pytest.param("fsync", 4, False, marks=pytest.mark.long),  # it may be there in part
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
