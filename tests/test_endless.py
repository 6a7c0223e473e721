"""No test and no process of one goes on for ever, and what is skipped is said in one line."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import endless
from tests.omissions import extra, omissions

ROOT = Path(__file__).resolve().parents[1]
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def brief(monkeypatch):
    """Processes may take no time."""
    monkeypatch.setattr(subprocess, "Popen", endless.LimitedProcess)
    monkeypatch.setattr(endless, "SECONDS", 0.01)


def ended(process):
    return subprocess.Popen.wait(process, 20) < 0


@pytest.mark.parametrize("wait", [subprocess.Popen.wait, subprocess.Popen.communicate])
def test_a_process_is_killed_at_its_limit(wait, brief):
    process = subprocess.Popen(SLEEP)
    with pytest.raises(subprocess.TimeoutExpired):
        getattr(process, wait.__name__)()
    assert ended(process)


def test_a_limit_of_the_caller_s_own_kills_nothing(brief):
    process = subprocess.Popen(SLEEP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    assert process.poll() is None
    process.kill()
    assert ended(process)


def test_every_test_has_a_limit_that_its_processes_keep(pytestconfig):
    assert issubclass(subprocess.Popen, endless.LimitedProcess)
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
    assert float(pytestconfig.getini("faulthandler_timeout")) == 2 * endless.SECONDS


IN_THE_BACKGROUND = """
import signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
from tests.endless import hear_signals
hear_signals()
asked = "from signal import *; print(getsignal(SIGINT).__name__, getsignal(SIGHUP).name)"
subprocess.run([sys.executable, "-S", "-c", asked])
signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGINT)
"""


def test_signals_that_the_parent_ignores_are_heard():
    command = [sys.executable, "-S", "-c", IN_THE_BACKGROUND]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "default_int_handler SIG_DFL\n"
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_what_is_skipped_is_one_line():
    reasons = ["Skipped: there is no GPU", f"Skipped: {extra('mlflow')}", "there is no GPU"]
    reports = [SimpleNamespace(longrepr=("test_x.py", 1, reason)) for reason in reasons]
    assert omissions(reports) == (
        "skipped 3 tests (2: there is no GPU; 1: .venv/bin/pip install -c constraints.txt -e "
        "'.[mlflow]' has not been run)"
    )
