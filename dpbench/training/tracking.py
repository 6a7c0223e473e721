"""Logging of runs to trackers. A tracker that fails is disabled, and never fails the run."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from dpbench.errors import first_line
from dpbench.privacy.accountants import rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger
from dpbench.records.record import Record
from dpbench.records.trackers import Log, RunInfo, Tracker
from dpbench.training.plan import Run, plan


class Tracking:
    """Logs one run to its trackers, by name.

    about: the description that trackers start with, given the number of steps made before a resume.
    """

    def __init__(self, trackers: Mapping[str, Tracker], run: Run, about: Callable[[int], RunInfo]):
        self._not_started, self._run, self._about = dict(trackers), run, about
        self._logs: dict[str, Log] = {}
        self._epochs_logged = 0

    def end_of_epoch(self, history: Mapping[str, list]) -> None:
        """Log all epochs that are not logged yet, including those before a resume.

        history: one entry per epoch.
        """
        if self._not_started or self._logs:
            guarded("all", lambda: self._log_epochs(history))

    def finish(self, record: Record) -> None:
        """Log the remaining epochs, diagnostics and figures, and finish.

        Epochs remain only if the run was resumed after its last step.
        """
        if self._not_started or self._logs:
            guarded("all", lambda: self._finish(record))

    def _log_epochs(self, history: Mapping[str, list]) -> None:
        planned, epochs = plan(self._run), len(history["train/loss"])
        steps = planned.sampler.steps_per_epoch
        self._start(steps * (epochs - 1))
        for epoch in range(self._epochs_logged, epochs):
            steps_done = steps * (epoch + 1)
            numbers = {name: values[epoch] for name, values in history.items()}
            epsilon = self._epsilon(planned.ledger.first(steps_done))
            self._log(steps_done, {"epoch": epoch + 1} | numbers | epsilon)
        self._epochs_logged = epochs

    def _finish(self, record: Record) -> None:
        self._start(record.privacy["steps"])
        if record.history:
            self._log_epochs(record.history)
        for step, numbers in _by_step(record.diagnostics):
            self._log(step, numbers)
        if record.calibration:
            # Imported here because it imports pandas, which takes half a second.
            from dpbench.figures.reliability import draw_reliability, reliability_points

            points = reliability_points({record.config["choices"]["method"]: [record]})
            png = draw_reliability(points, f"Reliability on the {_split(record)} set")
            self._for_each_log(lambda log: log.picture("reliability", png))
        self._for_each_log(lambda log: log.finish(record))

    def _start(self, steps_done: int) -> None:
        if not self._not_started:
            return
        about, trackers, self._not_started = self._about(steps_done), self._not_started, {}
        for name, tracker in trackers.items():
            guarded(name, partial(self._start_one, name, tracker, about))

    def _start_one(self, name: str, tracker: Tracker, about: RunInfo) -> None:
        self._logs[name] = tracker.start(about)

    def _log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._for_each_log(lambda log: log.log(step, numbers))

    def _for_each_log(self, call: Callable[[Log], None]) -> None:
        succeeded = {name: guarded(name, partial(call, log)) for name, log in self._logs.items()}
        self._logs = {name: log for name, log in self._logs.items() if succeeded[name]}

    def _epsilon(self, ledger: Ledger) -> dict[str, float]:
        """Epsilon by RDP, if the method has a guarantee."""
        method = self._run.method.on(self._run.dataset, self._run.users)
        if not method.private:
            return {"privacy/epsilon": math.inf}
        with suppress(Unaccountable):
            if method.guarantee.level != "none":
                return {"privacy/epsilon": rdp(ledger, self._run.privacy.delta)}
        return {}


def log_table(
    trackers: Mapping[str, Tracker], name: str, files: Mapping[str, bytes], folder: Path
) -> None:
    """Log a finished table, as files by suffix, to every tracker."""
    for tracker_name, tracker in trackers.items():
        guarded(tracker_name, partial(tracker.table, name, files, folder))


def guarded(name: str, call: Callable[[], None]) -> bool:
    """Calls a tracker, and returns whether it succeeded; a failure is a warning."""
    try:
        call()
        return True
    except Exception as error:
        hint = "; pip install 'dpbench-suite[tracking]'" * isinstance(error, ImportError)
        warnings.warn(
            f"tracker={name} failed and is disabled, and the run continues: "
            f"{type(error).__name__}, {first_line(error)}{hint}",
            stacklevel=2,
        )
        return False


def _by_step(diagnostics: Mapping[str, list]) -> Iterator[tuple[int, dict[str, float]]]:
    """The measured steps of a record with their values."""
    columns = {name: column for name, column in diagnostics.items() if name.startswith("step/")}
    for row, step in enumerate(diagnostics.get("step", [])):
        yield step, {name: column[row] for name, column in columns.items()}


def _split(record: Record) -> str:
    held_out = any(name.startswith("validation/") for name in record.metrics)
    return "validation" if held_out else "test"
