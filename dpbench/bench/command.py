"""`dpbench bench [KEY=VALUE ...]`: what to measure, and where the results go."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dpbench.bench import cases, contenders, report
from dpbench.bench.cases import Case
from dpbench.bench.contenders import BASELINE, CONTENDERS, Contender
from dpbench.bench.environment import environment
from dpbench.bench.timing import measure
from dpbench.errors import UserError
from dpbench.validate import integer, one_of, path_of, spelled_integer

SUITES = ("step", "depth")
MOST_REPEATS = 10_000


@dataclass(frozen=True)
class BenchRequest:
    """What was asked for. No case or contender named means those that belong to the suite.

    suite: "step" (models), or "depth" (methods over the depth of a perceptron). repeats: 0 measures
    nothing and writes table and picture again.
    """

    device: str
    suite: str = "step"
    case: tuple[str, ...] = ()
    contender: tuple[str, ...] = ()
    repeats: int = 20
    out: Path = Path("results/step_cost")

    def cases(self) -> list[Case]:
        """The cases, in their order; UserError for one that does not exist."""
        known = cases.DEPTH if self.suite == "depth" else cases.STEP[self.device]
        by_name = {case.name: case for case in known}
        return [_known("case", name, by_name) for name in self.case or by_name]

    def contenders(self, case: Case) -> dict[str, Contender]:
        """Contenders by name, the baseline first; UserError for one that does not exist."""
        usual = contenders.DEPTH if self.suite == "depth" else contenders.STEP
        chosen = self.contender or [n for n, c in usual.items() if case.compiled or not c.compiled]
        return {n: _known("contender", n, CONTENDERS) for n in dict.fromkeys((BASELINE, *chosen))}


def bench(arguments: list[str]) -> None:
    """Measure, add to the CSV file after each case, and write table and picture from it."""
    request = parse(arguments)
    file = request.out / f"{request.suite}_{request.device}.csv"
    chosen = [(case, request.contenders(case)) for case in request.cases()]
    for case, who in chosen if request.repeats else ():
        timed = measure(case, who, request.repeats, request.device, _say)
        report.add(file, report.rows(case, timed, environment(request.device)))
    if not file.exists():
        raise UserError(f"{file} is not there to be drawn again; measure with repeats=20.")
    print(report.render(file, over_depth=request.suite == "depth", say=_say))


def parse(arguments: list[str]) -> BenchRequest:
    """The request of KEY=VALUE arguments; UserError for what cannot be."""
    given: dict = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        _known("argument", key, READERS)
        if not equals or not value:
            raise UserError(f"{key} needs a value: {key}=VALUE.")
        given[key] = READERS[key](value)
    return BenchRequest(**{"device": _device("auto")} | given)


def _suite(value: str) -> str:
    return one_of("suite", value, SUITES)


def _names(value: str) -> tuple[str, ...]:
    return tuple(value.split(","))


def _repeats(value: str) -> int:
    return integer("repeats", spelled_integer(value), least=0, most=MOST_REPEATS)


def _device(value: str) -> str:
    """cpu or cuda."""
    there = torch.cuda.is_available()
    if value == "auto":
        return "cuda" if there else "cpu"
    if value not in ("cpu", "cuda") or (value == "cuda" and not there):
        raise UserError(f"device={value} is not available here; try device=auto.")
    return value


READERS: dict[str, Callable[[str], Any]] = {
    "suite": _suite,
    "case": _names,
    "contender": _names,
    "repeats": _repeats,
    "device": _device,
    "out": partial(path_of, "out"),
}


def _known(what: str, name: str, known: dict):
    """What goes by that name; UserError, with the nearest names, if nothing does."""
    return known[one_of(what, name, known)]


def _say(message: str) -> None:
    print(f"dpbench: {message}", file=sys.stderr)
