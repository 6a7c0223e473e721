"""`dpbench bench [KEY=VALUE ...]`: measures steps, and writes CSV, table and picture."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from msgspec.structs import replace

from dpbench.runs.config.commands import BenchCommand
from dpbench.system.arguments import read
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

from . import cases, contenders, counted, picture, report, whole_commands
from .cases import Case
from .contenders import BASELINE, CONTENDERS, Contender
from .environment import environment, load_per_core, processor_name
from .timing import measure
from .whole_commands import COMMANDS, TimedRun

COUNTED = "counted"
"""The device that need not be there."""


class BenchRequest(BenchCommand, frozen=True):
    """The settings of the command, with a device that is there, and what they select."""

    @property
    def file(self) -> Path:
        """The CSV file of all measurements of the suite on this kind of processor."""
        on = COUNTED if self.counted else processor_name(self.device)
        return self.out / f"{self.suite}_{on}.csv"

    @property
    def counted(self) -> bool:
        """Whether steps are counted and not timed."""
        return self.device == COUNTED

    def cases(self) -> list[Case]:
        """The cases, in their order; UserError for an unknown one."""
        suites = {"step": cases.STEP[self.device], "parts": cases.PARTS, "depth": cases.DEPTH}
        by_name = {case.name: case for case in suites[self.suite]}
        return [by_name[one_of("case", name, by_name)] for name in self.case or by_name]

    def commands(self) -> list[TimedRun]:
        """The commands to time, the baseline first; UserError for an unknown one."""
        by_name = {command.name: command for command in COMMANDS}
        if self.contender:
            raise UserError("suite=table has no contenders: choose commands by case=NAME.")
        names = dict.fromkeys((whole_commands.BASELINE, *(self.case or by_name)))
        return [by_name[one_of("case", name, by_name)] for name in names]

    def contenders(self, case: Case) -> dict[str, Contender]:
        """Contenders by name, the baseline first; UserError for an unknown one."""
        steps = contenders.COUNTED if self.counted else contenders.STEP
        suites = {"parts": contenders.PARTS, "depth": contenders.DEPTH}
        suite = suites.get(self.suite, steps)
        names = self.contender or [n for n, c in suite.items() if case.compiled or not c.compiled]
        return {
            name: CONTENDERS[one_of("contender", name, CONTENDERS)]
            for name in dict.fromkeys((BASELINE, *names))
        }


def bench(arguments: list[str]) -> None:
    """Measure, add to the CSV file after each case, and write table and picture from it."""
    request = parse(arguments)
    suite = COUNTS if request.counted else SUITES[request.suite]
    for rows in suite.measure(request):
        report.add(request.file, rows)
    if not request.file.exists():
        raise UserError(f"{request.file} does not exist; measure with repeats=20.")
    print(report.render(request.file, suite.markdown, suite.picture))


Measurement = tuple[Case, dict[str, Contender]]


def _measurements(request: BenchRequest) -> list[Measurement]:
    """Each case with its contenders; UserError for a broken file of one, or rows in the way."""
    measurements = [(case, request.contenders(case)) for case in request.cases()]
    for case, by_name in measurements:  # before any work: a contender's process would say less
        cases.settings_of("model", case.model)
        for method in dict.fromkeys(contender.method for contender in by_name.values()):
            cases.settings_of("method", method)
    if request.repeats:
        report.check_replaced(
            request.file, {case.name: [*by_name] for case, by_name in measurements}
        )
    return measurements if request.repeats else []


def _measure_steps(request: BenchRequest) -> Iterator[pd.DataFrame]:
    for case, by_name in _measurements(request):
        load = load_per_core()
        timed = measure(case, by_name, request.repeats, request.device)
        yield report.rows(case, timed, environment(request.device), load)


def _count_steps(request: BenchRequest) -> Iterator[pd.DataFrame]:
    for case, by_name in _measurements(request):
        yield counted.rows(case, by_name)


def _measure_commands(request: BenchRequest) -> Iterator[pd.DataFrame]:
    commands = request.commands()
    if request.repeats:
        timed = whole_commands.measure(commands, request.repeats)
        yield whole_commands.rows(timed, environment(request.device))


class Suite(NamedTuple):
    """What a suite measures, as rows of the CSV file, and how it shows them."""

    measure: Callable[[BenchRequest], Iterator[pd.DataFrame]]
    markdown: Callable[[pd.DataFrame], str]
    picture: Callable[[pd.DataFrame], bytes] | None = None


COUNTS = Suite(_count_steps, counted.markdown)

SUITES = {
    "step": Suite(_measure_steps, report.markdown, picture.draw),
    "parts": Suite(_measure_steps, report.markdown, picture.draw),
    "depth": Suite(_measure_steps, report.markdown, picture.draw_depth),
    "table": Suite(_measure_commands, whole_commands.markdown, picture.draw_commands),
}


def parse(arguments: list[str]) -> BenchRequest:
    """The request of KEY=VALUE arguments; UserError for invalid ones."""
    request = read("bench", BenchRequest, arguments)
    if request.device == COUNTED and request.suite != "step":
        raise UserError(f"device=counted has no suite={request.suite}: leave suite= out.")
    return replace(request, device=_device(request.device))


def _device(value: str) -> str:
    """cpu, cuda or counted."""
    if value == COUNTED:
        return value
    available = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    if value == "auto":
        return available[-1]
    if value not in available:
        raise UserError(f"device={value} is not available here; try device=auto.")
    return value
