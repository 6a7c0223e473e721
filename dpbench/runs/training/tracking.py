"""Logging of runs to trackers. A tracker that fails is disabled, and never fails the run."""

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.privacy.accountants import rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger, from_plain
from dpbench.runs.records.epsilon import legend, released
from dpbench.runs.records.reading import text_of
from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import Log, RunInfo, Tracker, group_names
from dpbench.runs.training.plan import Plan, privacy_statement
from dpbench.runs.training.run import Run
from dpbench.step.mechanism.method import GRADIENT_SUM
from dpbench.system.errors import MALFORMED_JSON, UserError, first_line, warn
from dpbench.system.files import write_atomically
from dpbench.system.interrupts import raise_if_interrupted

EPSILON = "privacy/epsilon_rdp"
"""The epsilon so far, as trackers log it: by RDP, which is fast, and may be above that by PLD."""

NOT_COVERED = "All other numbers are exact, such as train/loss: no epsilon covers them."
"""Said by trackers, which log private data for the data holder alone."""

CurvePoint = Mapping[str, float]


@dataclass(frozen=True)
class Spending:
    """What a run spends step by step. ledger: begins with the steps; once: of what is released
    once, which every epsilon includes. epsilon: by RDP, of all; None without a guarantee, and for a
    trial of a private search. terms: what it is stated for; "" without an epsilon."""

    ledger: Ledger
    once: Ledger
    delta: float
    epsilon: float | None
    steps_per_epoch: int
    terms: str

    def after(self, steps: int) -> dict[str, float]:
        """Epsilon by RDP after some steps, named as trackers log it; empty where there is none."""
        if self.epsilon is None or math.isinf(self.epsilon):
            return {} if self.epsilon is None else {EPSILON: math.inf}
        with suppress(Unaccountable):
            return {EPSILON: rdp(self.ledger.first(steps).then(self.once), self.delta)}
        return {}


def planned_spending(run: Run, planned: Plan) -> Spending:
    """What a run will spend."""
    statement, steps = privacy_statement(run, planned), planned.sampler.steps_per_epoch
    shown = run.trial is None
    epsilon, terms = (statement["rdp"], legend([statement])) if shown else (None, "")
    return Spending(planned.ledger, planned.once, run.privacy.delta, epsilon, steps, terms)


def recorded_spending(record: Record) -> Spending:
    """What the run of a record has spent."""
    privacy = released(record, record.statement)
    epochs = record.config["epochs"]  # of all planned steps
    made, once = Ledger(), Ledger()
    for step, times in from_plain(privacy["ledger"]).entries:
        if step.releases[0].what == GRADIENT_SUM:
            made = made.after(step, times)
        else:
            once = once.after(step, times)
    steps, terms = made.steps // epochs, legend([privacy])
    return Spending(made, once, privacy["delta"], privacy["rdp"], steps, terms)


class Tracking:
    """Logs one run to its trackers, by name, while it trains or when it is finished.

    Everything is logged from the first epoch on, even if the run was resumed later. with_curves:
    whether metrics of the test set are measured for it, which `curves` has.
    """

    def __init__(self, trackers: Mapping[str, Tracker], info: RunInfo, with_curves: bool = False):
        self.with_curves, self.curves = with_curves, Curves(info)
        self._not_started, self._info, self._asked = dict(trackers), info, len(trackers)
        self._logs: dict[str, Log] = {}
        self._epochs_logged = self._rows_logged = self._curves_logged = 0

    def update(
        self,
        spending: Callable[[], Spending],
        history: Mapping[str, list],
        measured: Mapping[str, list],
        steps: int,
    ) -> None:
        """Log all epochs and rows of diagnostics and curves that are not logged yet. spending:
        called only if there is a new epoch. measured: columns of the diagnostics. steps: the number
        done."""
        if self._not_started or self._logs:
            guarded("all", lambda: self._log_new(spending, history, measured, steps))

    def finish(self, record: Record, pictures: bool = True) -> bool:
        """Log what remains, the figures and the metrics, and finish; whether no tracker failed.
        pictures: whether figures are drawn, in a fifth of a second each, beside their numbers."""
        if self._not_started or self._logs:
            succeeded = guarded("all", lambda: self._finish(record, pictures))
            return succeeded and len(self._logs) == self._asked
        return not self._asked

    def _log_new(
        self,
        spending: Callable[[], Spending],
        history: Mapping[str, list],
        measured: Mapping[str, list],
        steps: int,
    ) -> None:
        self._start(lambda: spending().terms)
        groups = self._groups if "tested/loss" in measured else ()
        rows = list(_by_step(measured, _split(self._info.config), groups))
        for step, numbers in rows[self._rows_logged :]:
            self._log(step, numbers)
        self._rows_logged = len(rows)
        for step, metrics in sorted(self.curves.rows.items()):
            if self._curves_logged < step <= steps:
                self._log(step, metrics)
        self._curves_logged = steps
        epochs = len(history["train/loss"])
        by_epoch = {**history, **_columns(measured, "epoch/")}
        for epoch in range(self._epochs_logged, epochs):
            end = spending().steps_per_epoch * (epoch + 1)
            numbers = {name: values[epoch] for name, values in by_epoch.items()}
            self._log(end, {"epoch": epoch + 1} | numbers | spending().after(end))
        self._epochs_logged = epochs

    def _finish(self, record: Record, pictures: bool) -> None:
        self._start(lambda: legend([released(record, record.statement)]))
        if record.history:
            spending = functools.cache(lambda: recorded_spending(record))
            steps = record.privacy["steps"]
            self._log_new(spending, record.history, record.diagnostics, steps)
            if self._epochs_logged < record.config["epochs"]:
                # Only the epsilon of all planned steps covers when a run ended.
                self._log(steps, spending().after(steps))
        if record.calibration:
            # Imported here because it imports pandas, which takes half a second.
            from dpbench.runs.figures.reliability import reliability_picture, reliability_points

            points = reliability_points({record.config["choices"]["method"]: [record]})
            title = f"Reliability on the {_split(record.config)} set"
            png = reliability_picture(points, title) if pictures else None
            self._for_each_log(lambda log: log.figure("reliability", png, points))
        self._for_each_log(lambda log: log.finish(record))

    @functools.cached_property
    def _groups(self) -> tuple[str, ...]:
        return group_names(self._info.config)

    def _start(self, terms: Callable[[], str]) -> None:
        if not self._not_started:
            return
        trackers, self._not_started = self._not_started, {}
        text = " ".join(filter(None, (terms(), NOT_COVERED)))
        self._info = replace(self._info, terms=text)
        for name, tracker in trackers.items():
            guarded(name, functools.partial(self._start_one, name, tracker))

    def _start_one(self, name: str, tracker: Tracker) -> None:
        self._logs[name] = tracker.start(self._info)

    def _log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._for_each_log(lambda log: log.log(step, numbers))

    def _for_each_log(self, call: Callable[[Log], None]) -> None:
        succeeded = {
            name: guarded(name, functools.partial(call, log)) for name, log in self._logs.items()
        }
        self._logs = {name: log for name, log in self._logs.items() if succeeded[name]}


def log_table(
    trackers: Mapping[str, Tracker], name: str, files: Mapping[str, bytes], folder: Path
) -> None:
    """Log a finished table, as files by suffix, to every tracker."""
    for tracker_name, tracker in trackers.items():
        guarded(tracker_name, functools.partial(tracker.table, name, files, folder))


def guarded(name: str, call: Callable[[], None]) -> bool:
    """Calls a tracker, and returns whether it succeeded; a failure is a warning."""
    try:
        call()
        return True
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise_if_interrupted(error)
        missing = isinstance(error, ImportError)
        extra = name if name == "mlflow" else "tracking"
        hint = f"; pip install 'dpbench-suite[{extra}]'" if missing else ""
        warn(
            f"tracker={name} failed and is disabled, and the run continues: "
            f"{type(error).__name__}, {first_line(error)}{hint}"
        )
        return False


def _by_step(
    diagnostics: Mapping[str, list], split: str, groups: Sequence[str]
) -> Iterator[tuple[int, dict[str, float]]]:
    """The measured steps with their values, under the names that the metrics of the end have.
    split: test or validation. groups: their names in the order of their numbers."""
    columns = _columns(diagnostics, "step/", "tested/", "trained/")
    names = {name: _as_metric(name, split, groups) for name in columns}
    for row, step in enumerate(diagnostics.get("step", [])):
        yield step, {names[name]: column[row] for name, column in columns.items()}


def _as_metric(name: str, split: str, groups: Sequence[str]) -> str:
    """The metric of a column, for a group under its name; other columns keep their name."""
    kind, _, rest = name.partition("/")
    metric, _, number = rest.partition("/")
    if kind not in ("tested", "trained") or (number and number not in map(str, range(len(groups)))):
        return name
    of_group = f"/{groups[int(number)]}" if number else ""
    return f"{split if kind == 'tested' else 'train_set'}/{metric}{of_group}"


def _columns(diagnostics: Mapping[str, list], *prefixes: str) -> dict[str, list]:
    return {name: column for name, column in diagnostics.items() if name.startswith(prefixes)}


def _split(config: dict) -> str:
    return "test" if config.get("validation") is None else "validation"


class Curves:
    """Rows by step, in a file for the process that resumes the run, or logs its record."""

    def __init__(self, info: RunInfo):
        self._path = info.folder / "curves" / f"{info.digest}.json"
        self.rows = _rows(self._path)

    def resume(self, steps: int) -> None:
        """Forget what is measured again after so many steps, maybe by other code."""
        kept = {step: row for step, row in self.rows.items() if step <= steps}
        if kept != self.rows:
            self._write(kept)

    def add(self, step: int, row: CurvePoint) -> None:
        self._write({**self.rows, step: row})

    def _write(self, rows: dict[int, CurvePoint]) -> None:
        self.rows = rows
        with suppress(UserError):  # on a full disk too, no run fails by its trackers
            write_atomically(self._path, json.dumps(rows).encode())


def _rows(path: Path) -> dict[int, CurvePoint]:
    """The rows of a file; none without one, or if it has any other content."""
    try:
        found = json.loads(str(text_of(path)))
        return {
            int(step): {str(name): float(value) for name, value in row.items()}
            for step, row in found.items()
        }
    except MALFORMED_JSON:
        return {}


def tenths(steps: int) -> set[int]:
    """After how many steps each tenth of a run ends, but for the last."""
    return {-(-steps * tenth // 10) for tenth in range(1, 10)} - {steps}
