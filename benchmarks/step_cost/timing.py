"""Times contenders in turns (A B C, A B C, ...), each in its own process.

In a turn each is visited several times, so that a machine that slows down slows all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

import numpy as np

from dpbench.system.errors import print_message

from .cases import Case
from .check import Verdict, verdict
from .contender_process import ContenderError, ContenderProcess
from .contenders import Contender
from .ours import reference

VISITS = 5
"""Visits of a contender in one turn; a single one if a step takes longer than a visit."""

Reference = np.ndarray | ContenderError
"""The update [D] that a step must agree with, or why it is not available."""


@dataclass
class Timing:
    """The measurements of one contender on one case; `reason` says why there are none.

    steps: per visit. turns: seconds per step, of the visits in each repeat. memory: bytes, see
    `TimedStepper.memory`.
    """

    contender: str
    parameters: int | None = None
    check: Verdict | None = None
    steps: int | None = None
    turns: list[list[float]] = field(default_factory=list)
    memory: int | None = None
    reason: str = ""

    @property
    def seconds(self) -> list[float]:
        """Per step, one entry per repeat."""
        return [fmean(visits) for visits in self.turns]

    @property
    def steps_per_repeat(self) -> int | None:
        return self.steps * len(self.turns[0]) if self.steps and self.turns else None


def measure(
    case: Case, contenders: dict[str, Contender], repeats: int, device: str
) -> list[Timing]:
    """Time all contenders on one case; those that cannot run have a reason instead of times."""
    methods = {contender.method for contender in contenders.values()}
    expected = {method: _reference(case, method, device) for method in methods}
    results = {name: Timing(name) for name in contenders}
    running: dict[str, ContenderProcess] = {}
    try:
        for name, contender in contenders.items():
            print_message(f"{case.name}: {name}")
            running[name] = ContenderProcess(contender.make, case, device)
            prepare = partial(_prepare, expected[contender.method], contender.noisy)
            _attempt(running, results[name], prepare)
        for _ in range(repeats):
            _turn(running, results, 1 if case.epoch else VISITS)
        for name in list(running):
            _attempt(running, results[name], _finish)
    finally:
        for worker in running.values():
            worker.close()
    return list(results.values())


def _turn(running: dict[str, ContenderProcess], results: dict[str, Timing], visits: int) -> None:
    for name in running:
        results[name].turns.append([])
    for visit in range(visits):
        for name in list(running):
            if visit == 0 or results[name].steps != 1:
                _attempt(running, results[name], _visit)


def _attempt(
    running: dict[str, ContenderProcess],
    result: Timing,
    action: Callable[[ContenderProcess, Timing], None],
) -> None:
    """Perform an action of a contender, and drop the contender if it fails."""
    try:
        action(running[result.contender], result)
    except ContenderError as reason:
        result.reason, result.turns = str(reason), []
        running.pop(result.contender).close()


def _prepare(expected: Reference, noisy: bool, worker: ContenderProcess, result: Timing) -> None:
    observation = worker.call("observe")
    result.parameters = len(observation.update)
    if isinstance(expected, ContenderError):
        result.check = Verdict(float("nan"), f"not checked: {expected}")
    else:
        result.check = verdict(observation, expected, noisy)
    result.steps = worker.call("warm_up")


def _visit(worker: ContenderProcess, result: Timing) -> None:
    result.turns[-1].append(worker.call("visit"))


def _finish(worker: ContenderProcess, result: Timing) -> None:
    result.memory = worker.call("memory")


def _reference(case: Case, method: str, device: str) -> Reference:
    """The update [D] that contenders of a method must agree with."""
    worker = ContenderProcess(partial(reference, method=method), case, device)
    try:
        return worker.call("observe").update
    except ContenderError as reason:
        return reason
    finally:
        worker.close()
