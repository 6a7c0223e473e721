"""Starts processes that carry out one run, and kills them: a script, for `test_killed.py`.

    python killer.py CALL [OVERRIDES, LOG, ...]

Prints the exit codes of all processes in order, as JSON; a killed one has -9. Each process adds the
number of each step that it makes to the file LOG.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.training import plan
from dpbench.runs.training.loop import Training


def started(overrides: list[str], log: str, prepare: Callable[[], None] = lambda: None) -> int:
    """A process, forked from this one, which has imported all there is to import."""
    if pid := os.fork():
        return pid
    try:
        # Epsilons follow from the ledger, and take longer than these runs.
        plan.statement = brief
        _notes_steps(log)
        prepare()
        load_or_run(run_config(overrides), quiet=True)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def brief(ledger, *_) -> dict:
    """What a record needs of a statement."""
    unknown = dict.fromkeys(("rdp", "pld", "gdp", "claimed"))
    said = {"guarantee": "none", "why": "not asked", "delta": 1e-6, "noise_multiplier": 1.0}
    return unknown | said | {"steps": ledger.steps, "ledger": [{"entries": repr(ledger)}]}


def _notes_steps(log: str) -> None:
    make = Training._do_step

    def noted(training, batch):
        with Path(log).open("a") as file:
            file.write(f"{training.steps_done}\n")
        make(training, batch)

    Training._do_step = noted  # type: ignore[method-assign]


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_a_call(overrides: list[str], log: str, name: str, number: int, after: bool) -> list[int]:
    """Each process kills itself before or after its so-manieth call of a function of `os`."""

    def trap() -> None:
        function, calls = getattr(os, name), itertools.count(1)

        def deadly(*arguments, **named):
            mine = next(calls) == number
            if mine and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **named)
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(os, name, deadly)

    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        codes.append(ended(started(overrides, log, trap)))
    return codes


def at_random(overrides: list[str], log: str, seed: int, folder: str, mean: float) -> list[int]:
    """Each process is killed at some time after it put the run away once to four times more."""
    draw, codes = random.Random(seed), []
    while not codes or codes[-1] == -signal.SIGKILL:
        pid = started(overrides, log)
        _wait_for_checkpoints(pid, Path(folder), draw.randint(1, 4))
        time.sleep(draw.expovariate(1 / mean))
        os.kill(pid, signal.SIGKILL)
        codes.append(ended(pid))
    return codes


def _wait_for_checkpoints(pid: int, folder: Path, more: int) -> None:
    def newest() -> int:
        with suppress(FileNotFoundError):  # a run that ends removes its folder
            return max((int(path.stem) for path in folder.glob("*/*.ckpt")), default=0)
        return 0

    wanted = newest() + more
    # One that has ended is there, to be waited for, but for the folder.
    while (
        newest() < wanted and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.001)


def at_once(overrides: list[str], log: str, processes: int) -> list[int]:
    """All at the same time, and none is killed."""
    return [ended(pid) for pid in [started(overrides, log) for _ in range(processes)]]


def the_first(overrides: list[str], log: str, folder: str) -> list[int]:
    """Two at the same time, of which the one that is at work is killed."""
    first = started(overrides, log)
    _wait_for_checkpoints(first, Path(folder), 2)
    second = started(overrides, log)
    time.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    return [ended(first), ended(second)]


CALLS = {call.__name__: call for call in (at_a_call, at_random, at_once, the_first)}

if __name__ == "__main__":
    overrides, *others = json.loads(sys.argv[2])
    # Imports what is imported late, once for all processes.
    prepare(run_config(overrides))[0].load(Path("/nowhere"))
    print(json.dumps(CALLS[sys.argv[1]](overrides, *others)))
