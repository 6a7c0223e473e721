"""Progress: a bar on a terminal, a line a minute elsewhere, nothing for what is quick."""

import re
import threading

import pytest

from dpbench.system import progress
from dpbench.system.progress import Bar, LogLines, StepCount, counting

ANSI = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def test_without_a_terminal_a_sweep_prints_a_line_a_minute(clock, log, capfd):
    with counting("runs", 1000) as count:
        for _ in range(300):
            clock[0] += 0.25
            count()
    assert capfd.readouterr().err == "dpbench: runs: 241 of 1,000, 4.0 a second, 0:03:10 left\n"


def test_a_sweep_on_a_terminal_shows_every_run_and_no_other_output(terminal, capsys):
    with counting("runs", 3) as count:
        assert "0/3" in terminal.getvalue()
        count()
        count()
    assert "2/3" in terminal.getvalue()
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
    monkeypatch.setattr(LogLines, "interval", 0.0)
    with counting("runs", total, look):
        assert looked.wait(10)


UNDER_WAY = [StepCount("seed=0", 40, 1200), StepCount("a=[b] seed=1", 7, 1200)]


@pytest.mark.parametrize("total", [1, 2])
def test_a_terminal_shows_each_running_run(terminal, monkeypatch, total):
    after_a_look(monkeypatch, UNDER_WAY, total)
    shown = ANSI.sub("", terminal.getvalue())
    assert re.search(r"^  seed=0 +\S+ +40/1200", shown, re.MULTILINE)
    assert re.search(r"^  a=\[b\] seed=1 +\S+ +7/1200", shown, re.MULTILINE)
    assert shown.splitlines()[-1].startswith("runs "), "what has ended is shown no more"


def test_lines_name_running_runs_but_only_the_first_of_many(log, monkeypatch, capfd):
    after_a_look(monkeypatch, UNDER_WAY)
    line = "runs: 0 of 2; seed=0: step 40 of 1,200; a=[b] seed=1: step 7 of 1,200"
    assert capfd.readouterr().err == f"dpbench: {line}\n"
    after_a_look(monkeypatch, [StepCount(f"seed={seed}", 1, 2) for seed in range(20)])
    said = capfd.readouterr().err
    assert said.startswith("dpbench: runs: 0 of 2, 20 runs under way; seed=0: step 1 of 2; ")
    assert said.count("step") == progress.MAX_SHOWN


def test_a_quick_sweep_prints_no_progress(log, capfd):
    with counting("runs", 3) as count:
        count()
    assert capfd.readouterr() == ("", "")
