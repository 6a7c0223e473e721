"""What becomes of a process that is asked to end, once and twice. `faults/` ends real commands."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dpbench.runs.training.tracking import guarded
from dpbench.system.interrupts import (
    RESUME_HINT,
    Listener,
    between_steps,
    graceful_interrupts,
    hung_up,
    listening,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ended(monkeypatch):
    """The signals that would have ended this process at once."""
    heard = []
    monkeypatch.setattr(Listener, "_exit", lambda self, number: heard.append(number))
    return heard


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    time.sleep(0)  # in which Python calls the handler


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_exits_immediately_outside_the_context(ended, number):
    with listening():
        interrupt(number)
        until(lambda: ended)
    assert set(ended) == {number}


def test_the_first_interrupt_is_raised_and_the_second_exits(ended):
    with listening():
        with pytest.raises(KeyboardInterrupt), graceful_interrupts():
            interrupt()
        assert ended == []
        interrupt()
        until(lambda: ended)


def test_an_interrupt_that_an_import_made_an_error_of_is_one_still(ended):
    """As pybind11 does in the middle of importing matplotlib."""

    def importing():
        try:
            interrupt()
        except KeyboardInterrupt as inner:
            raise ImportError("initialization failed") from inner

    with listening(), pytest.raises(KeyboardInterrupt), graceful_interrupts():
        importing()
    with listening(), pytest.raises(KeyboardInterrupt), graceful_interrupts():
        guarded("csv", importing)
    with listening(), pytest.raises(ImportError, match="gone"), graceful_interrupts():
        raise ImportError("gone")
    assert ended == []


def test_a_step_is_finished_and_no_other_is_begun(ended):
    made = []

    def train():
        with between_steps() as interrupted:
            for step in range(5):
                if step == 2:
                    interrupt()
                made.append(step)
                if interrupted():
                    break

    with listening(), pytest.raises(KeyboardInterrupt), graceful_interrupts():
        train()
    assert made == [0, 1, 2]
    assert ended == []


def test_a_swallowed_interrupt_still_ends_the_steps(ended):
    def train():
        with suppress(KeyboardInterrupt):  # as some library may
            interrupt()
        with between_steps() as interrupted:
            assert interrupted()

    with listening(), pytest.raises(KeyboardInterrupt), graceful_interrupts():
        train()
    assert ended == []


def test_the_second_interrupt_exits_in_the_middle_of_a_step(ended):
    def train():
        with between_steps():
            interrupt()
            interrupt()
            until(lambda: ended)

    with listening(), pytest.raises(KeyboardInterrupt), graceful_interrupts():
        train()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2])
def test_a_repeated_signal_to_a_process_group_counts_once(number, ended):
    made = []

    def train():
        with between_steps() as interrupted:
            interrupt(number)
            interrupt(number)
            assert interrupted()
        made.append("not reached")

    with listening():
        with pytest.raises(KeyboardInterrupt), graceful_interrupts():
            train()
        assert hung_up() == (number == signal.SIGHUP)
        interrupt(number)  # while all is put in order
        assert (made, ended) == ([], [])
        interrupt()
        until(lambda: ended)


@pytest.mark.slow
def test_a_slow_exit_prints_how_to_exit_immediately(ended, capfd):
    with listening(), graceful_interrupts():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        said = []
        until(lambda: said.append(capfd.readouterr().err) or any(said))
    assert "".join(said) == "dpbench: finishing; interrupt again to exit immediately.\n"


def test_the_previous_handlers_are_restored_and_an_ignored_signal_stays_ignored(ended):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with listening(), listening():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with listening():
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == []


def test_without_a_listener_python_handles_interrupts():
    with graceful_interrupts(), between_steps() as interrupted:
        assert not interrupted()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


DEAF = """
import multiprocessing, os, shutil
from dpbench.system.interrupts import interrupts_ignored
LOOK = ["grep", "SigBlk", "/proc/self/status"]
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with interrupts_ignored():
        child = context.Process(target=os.execv, args=(shutil.which("grep"), LOOK))
        child.start()
    child.join()
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux says what is blocked"
)
def test_processes_started_in_the_context_block_interrupts(tmp_path):
    """The very first process, which starts the tracker of multiprocessing too, is no exception."""
    (tmp_path / "deaf.py").write_text(DEAF)
    done = subprocess.run(
        [sys.executable, tmp_path / "deaf.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    blocked = int(done.stdout.split()[1], 16)
    assert blocked & 1 << signal.SIGINT - 1
    assert blocked & 1 << signal.SIGHUP - 1
    assert not blocked & 1 << signal.SIGTERM - 1


ENDLESS_CHILD = """
import multiprocessing, os, signal, time
from dpbench.system.interrupts import graceful_interrupts, listening
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    print(child.pid, flush=True)
    end = time.monotonic() + 60
    with listening(), graceful_interrupts():
        while time.monotonic() < end:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass
"""


@pytest.mark.slow
def test_the_second_interrupt_kills_child_processes(tmp_path):
    (tmp_path / "parent.py").write_text(ENDLESS_CHILD)
    done = subprocess.run(
        [sys.executable, tmp_path / "parent.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, f"dpbench: {RESUME_HINT}\n")
    until(lambda: not is_alive(int(done.stdout)))


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")  # a killed orphan that nobody has waited for
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


LEAVES_GARBAGE = """
import atexit
from dpbench.system.interrupts import exit_sooner

class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("collected")

exit_sooner()
atexit.register(print, "registered")
Cycle()
"""


def test_exit_handlers_run_but_no_garbage_collection():
    said = subprocess.check_output([sys.executable, "-c", LEAVES_GARBAGE], cwd=ROOT, text=True)
    assert said == "registered\n"
