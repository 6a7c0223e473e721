"""What a run tells its trackers. A tracker that fails is left out; the run never fails by it."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from dpbench.figures.reliability import draw_reliability, reliability_points
from dpbench.privacy.accountants import rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger
from dpbench.records.record import Record
from dpbench.records.trackers import Log, RunInfo, Tracker
from dpbench.training.plan import Run, plan


class Tracking:
    """The trackers of one run, by name, and how much they were told.

    about: what they are told at the start, given how many steps an earlier process made.
    """

    def __init__(self, trackers: Mapping[str, Tracker], run: Run, about: Callable[[int], RunInfo]):
        self._not_started, self._run, self._about = dict(trackers), run, about
        self._logs: dict[str, Log] = {}
        self._epochs_logged = 0  # epochs

    def end_of_epoch(self, history: Mapping[str, list]) -> None:
        """Tell of every epoch that was not told of yet, those of an earlier process among them.

        history: one entry per epoch.
        """
        if self._not_started or self._logs:
            guarded("all", lambda: self._epochs(history))

    def finish(self, record: Record) -> None:
        """Tell of what was not told yet, draw what there is to draw, and end.

        All epochs are told by now, unless an earlier process made the last step.
        """
        if self._not_started or self._logs:
            guarded("all", lambda: self._end(record))

    def _epochs(self, history: Mapping[str, list]) -> None:
        planned, epochs = plan(self._run), len(history["train/loss"])
        steps = planned.sampler.steps_per_epoch
        self._start(steps * (epochs - 1))
        for epoch in range(self._epochs_logged, epochs):
            made = steps * (epoch + 1)
            numbers = {name: values[epoch] for name, values in history.items()}
            spent = self._epsilon(planned.ledger.first(made))
            self._log(made, {"epoch": epoch + 1} | numbers | spent)
        self._epochs_logged = epochs

    def _end(self, record: Record) -> None:
        self._start(record.privacy["steps"])
        if record.history:
            self._epochs(record.history)
        for step, numbers in _by_step(record.diagnostics):
            self._log(step, numbers)
        if record.calibration:
            points = reliability_points({record.config["choices"]["method"]: [record]})
            png = draw_reliability(points, f"Reliability on the {_split(record)} set")
            self._for_each_log(lambda log: log.picture("reliability", png))
        self._for_each_log(lambda log: log.finish(record))

    def _start(self, made: int) -> None:
        if not self._not_started:
            return
        about, waiting, self._not_started = self._about(made), self._not_started, {}
        for name, tracker in waiting.items():
            guarded(name, partial(self._start_one, name, tracker, about))

    def _start_one(self, name: str, tracker: Tracker, about: RunInfo) -> None:
        self._logs[name] = tracker.start(about)

    def _log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._for_each_log(lambda log: log.log(step, numbers))

    def _for_each_log(self, tell: Callable[[Log], None]) -> None:
        went_well = {name: guarded(name, partial(tell, log)) for name, log in self._logs.items()}
        self._logs = {name: log for name, log in self._logs.items() if went_well[name]}

    def _epsilon(self, ledger: Ledger) -> dict[str, float]:
        """By RDP, where the method proves any."""
        method = self._run.method.on(self._run.dataset, self._run.users)
        if not method.private:
            return {"privacy/epsilon": math.inf}
        with suppress(Unaccountable):
            if method.guarantee.level != "none":
                return {"privacy/epsilon": rdp(ledger, self._run.privacy.delta)}
        return {}


def keep_table(
    trackers: Mapping[str, Tracker], name: str, files: Mapping[str, bytes], folder: Path
) -> None:
    """Give a finished table, its files by suffix, to every tracker."""
    for called, tracker in trackers.items():
        guarded(called, partial(tracker.table, name, files, folder))


def guarded(name: str, call: Callable[[], None]) -> bool:
    """Whether a call to a tracker went well; one that did not is a warning."""
    try:
        call()
        return True
    except Exception as error:
        (line, *_) = [*str(error).splitlines(), ""]
        way_out = "; pip install 'dpbench-suite[tracking]'" * isinstance(error, ImportError)
        warnings.warn(
            f"tracker={name} fails and is left out, and the run goes on: {type(error).__name__}, "
            f"{line}{way_out}",
            stacklevel=2,
        )
        return False


def _by_step(diagnostics: Mapping[str, list]) -> Iterator[tuple[int, dict[str, float]]]:
    """The measured steps of a record, each with its numbers."""
    columns = {name: column for name, column in diagnostics.items() if name.startswith("step/")}
    for row, step in enumerate(diagnostics.get("step", [])):
        yield step, {name: column[row] for name, column in columns.items()}


def _split(record: Record) -> str:
    held_out = any(name.startswith("validation/") for name in record.metrics)
    return "validation" if held_out else "test"
