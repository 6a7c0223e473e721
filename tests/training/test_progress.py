"""Progress: a bar on a terminal, a line a minute elsewhere, nothing for what is quick."""

import io
import os
import re
import threading
import time

import pytest
from rich.console import Console

from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import Ledger
from dpbench.records.epsilon import rounded_up
from dpbench.training import progress
from dpbench.training.plan import plan
from dpbench.training.progress import Progress, counting
from dpbench.training.progress_display import Bar, Lines, Steps
from dpbench.training.statistics import PrivateNormalization
from dpbench.training.steps_file import NAME, StepsFile, read
from tests.training.small_runs import run_of

ANSI = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal was given to show."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "_display", lambda *about: Bar(console, *about))
    return shown


@pytest.fixture
def log(monkeypatch):
    """As where standard error is a file."""
    monkeypatch.setattr(progress, "_display", Lines)


@pytest.fixture
def planned():
    return plan(run_of(epochs=3))


def test_a_terminal_shows_steps_loss_and_the_epsilon_so_far(clock, terminal, planned):
    with Progress(planned, 1e-5, quiet=False) as shown:
        shown.advance()
        assert "epsilon" not in terminal.getvalue(), "drawn for a run that may end at once"
        shown.show_loss(2.5)
        clock[0] += 10
        shown.advance()
    spent = rdp(Ledger().after(planned.step, 2), 1e-5)
    assert f"loss 2.500  epsilon {rounded_up(spent)}" in terminal.getvalue()
    assert f"2/{planned.steps}" in terminal.getvalue()


def test_the_epsilon_so_far_has_what_is_released_before_the_first_step(clock, terminal):
    planned = plan(run_of(normalization=PrivateNormalization(8.0, 8.0), epochs=3))
    with Progress(planned, 1e-5, quiet=False) as shown:
        shown.show_loss(2.5)
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


def test_a_sweep_without_a_terminal_is_a_line_a_minute(clock, log, capfd):
    with counting("runs", 1000) as count:
        for _ in range(300):
            clock[0] += 0.25
            count()
    assert capfd.readouterr().err == "dpbench: runs: 241 of 1,000, 4.0 a second, 0:03:10 left\n"


def test_a_sweep_on_a_terminal_shows_every_run(terminal):
    with counting("runs", 3) as count:
        assert "0/3" in terminal.getvalue()
        count()
        count()
    assert "2/3" in terminal.getvalue()


def test_what_is_printed_for_another_program_is_not_sent_to_the_terminal(terminal, capsys):
    with counting("runs", 3):
        print("runs/record.json")
    assert capsys.readouterr().out == "runs/record.json\n"
    assert "record" not in terminal.getvalue()


def after_a_look(monkeypatch, running, total=2):
    """Count nothing of so many runs until what is under way has been looked at and shown."""
    looked = threading.Event()

    def look():
        if looked.is_set():
            return ()
        looked.set()
        return running

    monkeypatch.setattr(progress, "REDRAWN_EVERY", 0.001)
    monkeypatch.setattr(Bar, "interval", 0.0)
    monkeypatch.setattr(Lines, "interval", 0.0)
    with counting("runs", total, look):
        assert looked.wait(10)


UNDER_WAY = [Steps("seed=0", 40, 1200), Steps("a=[b] seed=1", 7, 1200)]


@pytest.mark.parametrize("total", [1, 2])
def test_a_terminal_shows_each_run_that_is_under_way(terminal, monkeypatch, total):
    after_a_look(monkeypatch, UNDER_WAY, total)
    shown = ANSI.sub("", terminal.getvalue())
    assert re.search(r"^  seed=0 +\S+ +40/1200", shown, re.MULTILINE)
    assert re.search(r"^  a=\[b\] seed=1 +\S+ +7/1200", shown, re.MULTILINE)
    assert shown.splitlines()[-1].startswith("runs "), "what has ended is shown no more"


def test_a_line_names_the_runs_under_way_before_any_has_ended(log, monkeypatch, capfd):
    after_a_look(monkeypatch, UNDER_WAY)
    line = "runs: 0 of 2; seed=0: step 40 of 1,200; a=[b] seed=1: step 7 of 1,200"
    assert capfd.readouterr().err == f"dpbench: {line}\n"


def test_of_many_runs_under_way_the_first_are_shown_and_all_are_counted(log, monkeypatch, capfd):
    after_a_look(monkeypatch, [Steps(f"seed={seed}", 1, 2) for seed in range(20)])
    said = capfd.readouterr().err
    assert said.startswith("dpbench: runs: 0 of 2, 20 runs under way; seed=0: step 1 of 2; ")
    assert said.count("step") == progress.MAX_SHOWN


def test_a_run_of_a_sweep_keeps_its_steps_in_a_file_while_it_trains(clock, planned, tmp_path):
    with Progress(planned, 1e-5, True, 0, tmp_path / NAME) as shown:
        shown.advance()
        assert read(tmp_path, 0) is None, "written for a run that may end at once"
        clock[0] += 3
        shown.advance()
        assert read(tmp_path, 0) == (2, planned.steps)
        shown.advance()
        assert read(tmp_path, 0) == (2, planned.steps), "written at every step"
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_has_left_is_no_progress(tmp_path):
    StepsFile(tmp_path / NAME, 9).show(4)
    assert read(tmp_path, time.time() - 60) == (4, 9)
    os.utime(tmp_path / NAME, (1, 1))
    assert read(tmp_path, time.time() - 60) is None
    (tmp_path / NAME).write_text("4 ")
    assert read(tmp_path, 0) is None
    StepsFile(tmp_path / "missing" / NAME, 9).show(4)  # a folder that is gone stops no run


@pytest.mark.parametrize("quick", [True, False])
def test_nothing_is_said_of_what_is_quiet_or_quick(quick, log, planned, capfd):
    with Progress(planned, 1e-5, quiet=not quick) as shown, counting("runs", 3) as count:
        shown.advance()
        count()
    assert capfd.readouterr() == ("", "")
