"""The progress of a run: steps, loss and epsilon so far; nothing of what is quick."""

import os
import time

import pytest

from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import Ledger
from dpbench.runs.records.epsilon import rounded_up
from dpbench.runs.training.plan import plan
from dpbench.runs.training.progress import STEPS_FILE, Progress, StepsFile, running_steps
from dpbench.runs.training.statistics import PrivateNormalization
from tests.runs.training.small_runs import run_of


@pytest.fixture
def planned():
    return plan(run_of(epochs=3))


def test_a_terminal_shows_steps_loss_and_the_epsilon_so_far(clock, terminal, planned):
    with Progress(planned, 1e-5, quiet=False) as shown:
        shown.advance()
        assert "epsilon" not in terminal.getvalue(), "drawn for a run that may end at once"
        shown.loss = 2.5
        clock[0] += 10
        shown.advance()
    spent = rdp(Ledger().after(planned.step, 2), 1e-5)
    assert f"loss 2.500 (exact, not covered)  epsilon {rounded_up(spent)}" in terminal.getvalue()
    assert f"2/{planned.steps}" in terminal.getvalue()


def test_the_epsilon_so_far_has_what_is_released_before_the_first_step(clock, terminal):
    planned = plan(run_of(normalization=PrivateNormalization(8.0, 8.0), epochs=3))
    with Progress(planned, 1e-5, quiet=False) as shown:
        shown.loss = 2.5
        clock[0] += 10
        shown.advance()
    spent = rdp(Ledger().after(planned.step).then(planned.once), 1e-5)
    assert spent > rdp(Ledger().after(planned.step), 1e-5) + 0.01
    assert f"epsilon {rounded_up(spent)}" in terminal.getvalue()


def test_without_a_terminal_a_run_is_a_line_a_minute(clock, log, planned, capfd):
    with Progress(planned, 1e-5, quiet=False, done=1) as shown:
        for _ in range(6):
            clock[0] += 25
            shown.advance()
    lines = capfd.readouterr().err.splitlines()
    spent = [rounded_up(rdp(Ledger().after(planned.step, steps), 1e-5)) for steps in (4, 7)]
    assert lines == [
        f"dpbench: training: 4 of 36, epsilon {spent[0]} (RDP), 2.4 a minute, 0:13:20 left",
        f"dpbench: training: 7 of 36, epsilon {spent[1]} (RDP), 2.4 a minute, 0:12:05 left",
    ]


@pytest.fixture
def folder(tmp_path):
    """The folder of a run's checkpoints."""
    (tmp_path / "checkpoints/0a").mkdir(parents=True)
    return tmp_path / "checkpoints/0a"


@pytest.fixture
def read(folder, monkeypatch):
    """Reads the steps of the only run of a sweep that began at 60 seconds."""
    with monkeypatch.context() as then:
        then.setattr(time, "time", lambda: 60.0)
        return running_steps(folder.parents[1], {"0a": "seed=0"})


def test_a_run_of_a_sweep_keeps_its_steps_in_a_file_while_it_trains(clock, planned, folder, read):
    with Progress(planned, 1e-5, True, 0, folder) as shown:
        shown.advance()
        assert read() == [], "written for a run that may end at once"
        clock[0] += 3
        shown.advance()
        assert read() == [("seed=0", 2, planned.steps)]
        shown.advance()
        assert read() == [("seed=0", 2, planned.steps)], "written at every step"
    assert list(folder.iterdir()) == []


def test_a_steps_file_left_by_a_killed_run_is_ignored(folder, read):
    StepsFile(folder, 9).show(4, "")
    assert read() == [("seed=0", 4, 9)]
    os.utime(folder / STEPS_FILE, (1, 1))
    assert read() == []
    (folder / STEPS_FILE).write_text("4 ")
    assert read() == []
    StepsFile(folder / "missing", 9).show(4, "")  # a folder that is gone stops no run


def test_a_link_or_a_pipe_in_the_place_of_a_steps_file_is_left_alone(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / STEPS_FILE).symlink_to(victim)
    StepsFile(folder, 9).show(4, "")
    assert victim.read_text() == "precious"
    (folder / STEPS_FILE).unlink()
    os.mkfifo(folder / STEPS_FILE)
    StepsFile(folder, 9).show(4, "")  # does not wait for a reader


@pytest.mark.parametrize("quick", [True, False])
def test_nothing_is_said_of_a_run_that_is_quiet_or_quick(quick, log, planned, capfd):
    with Progress(planned, 1e-5, quiet=not quick) as shown:
        shown.advance()
    assert capfd.readouterr() == ("", "")
