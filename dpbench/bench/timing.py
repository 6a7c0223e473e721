"""Contenders timed in turns: A B C, A B C, ..., each in its own process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dpbench.bench.cases import Case
from dpbench.bench.check import Verdict, verdict
from dpbench.bench.contenders import Contender
from dpbench.bench.ours import reference
from dpbench.bench.worker import ContenderProcess, WorkerError

Reference = np.ndarray | WorkerError
"""The update [D] that a step must come to, or why it is not known."""


@dataclass
class Timed:
    """What one contender did on one case, or in `reason` why it did not.

    seconds: per step, one entry per repeat. memory: bytes, see `Contestant.memory`.
    """

    contender: str
    parameters: int | None = None
    check: Verdict | None = None
    steps: int | None = None
    seconds: list[float] = field(default_factory=list)
    memory: int | None = None
    reason: str = ""

    def ratios(self, baseline: "Timed") -> list[float]:
        """Its seconds over the baseline's of the same turn."""
        pairs = zip(self.seconds, baseline.seconds, strict=False)
        return [ours / plain for ours, plain in pairs]


def measure(
    case: Case,
    contenders: dict[str, Contender],
    repeats: int,
    device: str,
    say: Callable[[str], None],
) -> list[Timed]:
    """All contenders on one case; those that cannot run say why instead."""
    methods = {contender.method for contender in contenders.values()}
    expected = {method: _reference(case, method, device) for method in methods}
    results = {name: Timed(name) for name in contenders}
    running: dict[str, ContenderProcess] = {}
    try:
        for name, contender in contenders.items():
            say(f"{case.name}: {name}")
            running[name] = ContenderProcess(contender.make, case, device)
            prepare = partial(_prepare, expected[contender.method], contender.private)
            _attempt(running, results[name], prepare)
        for _ in range(repeats):
            for name in list(running):
                _attempt(running, results[name], _repeat)
        for name in list(running):
            _attempt(running, results[name], _finish)
    finally:
        for worker in running.values():
            worker.close()
    return list(results.values())


def _attempt(
    running: dict[str, ContenderProcess],
    result: Timed,
    what: Callable[[ContenderProcess, Timed], None],
) -> None:
    """Do one thing with a contender, and be done with it where that fails."""
    try:
        what(running[result.contender], result)
    except WorkerError as why:
        result.reason, result.seconds = str(why), []
        running.pop(result.contender).close()


def _prepare(expected: Reference, private: bool, worker: ContenderProcess, result: Timed) -> None:
    seen = worker.ask("observe")
    result.parameters = len(seen.update)
    if isinstance(expected, WorkerError):
        result.check = Verdict(float("nan"), f"not checked: {expected}")
    else:
        result.check = verdict(seen, expected, private)
    result.steps = worker.ask("warm_up")


def _repeat(worker: ContenderProcess, result: Timed) -> None:
    result.seconds.append(worker.ask("repeat"))


def _finish(worker: ContenderProcess, result: Timed) -> None:
    result.memory = worker.ask("memory")


def _reference(case: Case, method: str, device: str) -> Reference:
    """The update [D] that contenders of a method must come to."""
    worker = ContenderProcess(partial(reference, method=method), case, device)
    try:
        return worker.ask("observe").update
    except WorkerError as why:
        return why
    finally:
        worker.close()
