"""Commands as a user starts them: in processes, and process groups, of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A shell without job control has its children ignore Ctrl-C.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dpbench.cli import main as cli
def begun(main=cli._main):
    print("begun", flush=True)
    main()
if __name__ == "__main__":
    cli._main = begun
    cli.main()
"""


class Command:
    """`dpbench ...` as a terminal would start it; `begun` when its own first line is reached."""

    def __init__(self, *words: object):
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *map(str, words)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == "begun\n"

    def press(self, number: int = signal.SIGINT, group: bool = True) -> None:
        """Send a signal to all of its processes, as a terminal does, or to the first one alone."""
        if self.process.poll() is None:
            (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self) -> tuple[int, list[str], list[str]]:
        """Exit code, lines of stdout and of stderr."""
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out.splitlines(), err.splitlines()

    def alive(self) -> list[int]:
        """Its processes, and theirs, that have not ended."""
        asked = ["ps", "-o", "pid=,stat=", "-s", str(self.process.pid)]
        lines = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        states = (line.split() for line in lines.splitlines())
        return [int(pid) for pid, state in states if not state.startswith("Z")]


@pytest.fixture
def command():
    """command(...): a Command; what is left of it is killed at the end of the test."""
    started = []

    def start(*words: object) -> Command:
        started.append(Command(*words))
        return started[-1]

    yield start
    for one in started:
        for pid in one.alive():
            os.kill(pid, signal.SIGKILL)
        one.process.wait()
        one.process.stdout.close()
        one.process.stderr.close()


@pytest.fixture(scope="session")
def until():
    """until(condition): wait for it, two minutes at most."""

    def wait(condition, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it never came"
            time.sleep(0.02)

    return wait
