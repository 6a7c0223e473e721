"""Times of whole commands, from the start of the process to its end."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.system.errors import print_message

from .report import environment_lines, ratios, spread

BASELINE = "import torch"

EXPLANATION = (
    "From the start of the process to its end, in turns. Seconds are medians over the repeats "
    "(least to largest), ratios medians over the repeats of the time over that of `import torch` "
    "in the same turn; CPU seconds include the processes that a command starts. Runs and tables "
    "are made in an empty folder, tables with five seeds; `finished run` asks for a run that is "
    "there."
)


@dataclass(frozen=True)
class TimedRun:
    """A command to be timed.

    arguments: of `dpbench`, or of Python for the baseline. code: the exit code of success. repeats:
    the most that are taken, since a table takes minutes. stays: whether its results stay from one
    repeat to the next.
    """

    name: str
    arguments: tuple[str, ...]
    code: int = 0
    repeats: int = 20
    stays: bool = False

    @property
    def line(self) -> tuple[str, ...]:
        module = () if self.name == BASELINE else ("-m", "dpbench")
        return (sys.executable, *module, *self.arguments)


RUN = ("run", "epochs=1")
SEEDS = "table.seeds=[0,1,2,3,4]"  # 40 runs of a table

COMMANDS = (
    TimedRun(BASELINE, ("-c", "import torch")),
    TimedRun("--help", ("--help",)),
    TimedRun("list", ("list",)),
    TimedRun("refused override", ("run", "modle=mlp"), code=2),
    TimedRun("finished run", RUN, stays=True),
    TimedRun("run epochs=1", RUN),
    TimedRun("reproduce demo", ("reproduce", "demo"), repeats=5),
    *(
        TimedRun(f"reproduce {name} jobs=2", ("reproduce", name, "jobs=2", SEEDS), repeats=3)
        for name in ("misalignment_table5", "misalignment_table4")
    ),
)


@dataclass
class TimedCommand:
    """The measurements of one command; `reason` says why there are none."""

    command: TimedRun
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    reason: str = ""


def measure(commands: Iterable[TimedRun], repeats: int) -> list[TimedCommand]:
    """Time all commands in turns; those that fail are not repeated."""
    timed = [TimedCommand(command) for command in commands]
    with tempfile.TemporaryDirectory() as folder:
        for each in timed:
            if each.command.stays:
                _time(TimedCommand(each.command), Path(folder))
        for repeat in range(repeats):
            for each in timed:
                if repeat < each.command.repeats and not each.reason:
                    print_message(f"{each.command.name}: {repeat + 1}")
                    _time(each, Path(folder))
    return timed


def _time(timed: TimedCommand, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        results = folder / "finished" if timed.command.stays else Path(empty)
        line = timed.command.line
        if timed.command.arguments[0] in ("run", "reproduce"):
            line = (*line, f"results_dir={results}")
        start, cpu_start = time.perf_counter(), _cpu_seconds()
        ended = subprocess.run(line, capture_output=True, text=True, check=False)
        seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu_start
    if ended.returncode == timed.command.code:
        timed.seconds.append(seconds)
        timed.cpu_seconds.append(cpu_seconds)
    else:
        timed.reason = (ended.stderr.splitlines() or [f"exit code {ended.returncode}"])[-1]


def _cpu_seconds() -> float:
    """CPU seconds of all child processes that have ended, and of their children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rows(timed: list[TimedCommand], environment: str) -> pd.DataFrame:
    """One row per command."""
    (baseline,) = (each for each in timed if each.command.name == BASELINE)
    return pd.DataFrame([_row(each, baseline, environment) for each in timed])


def _row(timed: TimedCommand, baseline: TimedCommand, environment: str) -> dict:
    return {
        "case": timed.command.name,
        "command": " ".join(("dpbench", *timed.command.arguments)),
        **spread("seconds", timed.seconds),
        **spread("cpu_seconds", timed.cpu_seconds),
        **spread("ratio", ratios(timed.seconds, baseline.seconds)),
        "repeats": len(timed.seconds),
        "reason": timed.reason,
        "environment": environment,
    }


def markdown(data: pd.DataFrame) -> str:
    """One table of all commands."""
    head = ("command", "seconds", "CPU seconds", "over `import torch`", "repeats")
    cells = tuple((row.case, *_cells(row)) for row in data.itertuples())
    blocks: list[PageBlock] = [EXPLANATION, [*environment_lines(data)], Grid("", head, cells)]
    return Page("Time of whole commands", blocks).markdown


def _cells(row) -> list[str]:
    if row.reason:
        return [row.reason, "—", "—", "0"]
    seconds = f"{row.seconds:.2f} ({row.seconds_min:.2f} to {row.seconds_max:.2f})"
    return [seconds, f"{row.cpu_seconds:.2f}", f"{row.ratio:.2f}", str(row.repeats)]
