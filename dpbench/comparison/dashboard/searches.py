"""The searches of a results folder as cards: the cloud of all trials, and what each has chosen."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.comparison.dashboard.documents import Card, card
from dpbench.comparison.dashboard.values import DASH, finite_number, metric_entry, with_unit
from dpbench.comparison.search.selection import ACCURACY, LOSS
from dpbench.comparison.tables.data import SearchData, read_json
from dpbench.comparison.tables.grid import counted
from dpbench.runs.records.folder import SEARCH
from dpbench.runs.records.reading import Unreadable, text_of
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped

TRIAL = "trial"
"""The column of numbers of trials."""

USUAL = "optimizer.lr"
"""The setting on the axis where the methods of a card search it."""

METHOD = "method"

Point = tuple[float, float, str]
"""Where a trial is, and what it tried."""


@dataclass(frozen=True)
class SearchTrials:
    """A search of one method: its trials as lines of a CSV file, and the number of the chosen one,
    which may be another method's."""

    study: str
    method: str
    trials: Sequence[dict[str, str]]
    settings: Sequence[str]
    chosen: str


def searches(folder: Path) -> list[Card]:
    """A card for each table and task that was searched."""
    files = files_in(folder / SEARCH, "*.csv")
    groups = grouped((one.study, one) for file in files for one in _searches(file))
    return [_card(study, group) for study, group in groups.items()]


def _searches(path: Path) -> Iterator[SearchTrials]:
    """The searches of a file, one for each method that it tries; none for a private one, which
    shows no trials, and for a damaged file."""
    search, text = read_json(path.with_suffix(".json"), SearchData), text_of(path)
    if isinstance(search, Unreadable) or isinstance(text, Unreadable):
        return
    lines = [*csv.DictReader(io.StringIO(text))]
    settings = [setting for setting in search.ranges if setting != METHOD]
    if not lines or not {TRIAL, ACCURACY, LOSS, *search.ranges} <= lines[0].keys():
        return
    task = [name for group, name in search.choices.items() if group != METHOD]
    method = search.choices.get(METHOD)
    for name, trials in grouped((method or line[METHOD], line) for line in lines).items():
        arm, study = _names(path.stem, task, name)
        yield SearchTrials(study, arm, trials, settings, str(search.chosen))


def _names(file: str, task: Sequence[str], method: str) -> tuple[str, str]:
    """The names of a search and of its study: those of its file, its task and its method."""
    table, *parts = file.split("-")
    arm = next((part for part in parts if part.startswith(method)), method)
    marks = [part for part in parts if part not in (*task, arm)]
    return ", ".join([arm, *marks]), f"{table}: {', '.join(task)}"


def _card(study: str, group: Sequence[SearchTrials]) -> Card:
    metric = _metric(group[0])
    entry = metric_entry(metric)
    axis = _axis(group)
    rows = [[one.method, str(len(one.trials)), *_best(one, metric)] for one in group]
    count = sum(len(one.trials) for one in group)
    return card(
        f"{study}, {counted(count, 'trial')}",
        cloud=_cloud(group, axis, metric) if axis else None,
        head=["method", "trials", "chosen on validation", entry["label"]],
        rows=rows,
    )


def _best(search: SearchTrials, metric: str) -> tuple[str, str]:
    """The settings of the chosen trial, and its metric."""
    chosen = next((one for one in search.trials if one[TRIAL] == search.chosen), None)
    if chosen is None:
        return DASH, DASH
    percent = metric_entry(metric)["percent"]
    setting = _settings(search, chosen) or f"trial {search.chosen}"
    return setting, with_unit(finite_number(chosen.get(metric, "")), percent)


def _metric(search: SearchTrials) -> str:
    """The metric of the validation split that is drawn: the loss where there is no accuracy."""
    return ACCURACY if any(trial[ACCURACY] for trial in search.trials) else LOSS


def _axis(group: Sequence[SearchTrials]) -> str | None:
    """The setting that most of the methods search, of several the usual one."""
    counts = Counter(
        name
        for one in group
        for name in one.settings
        if all(finite_number(trial.get(name, "")) is not None for trial in one.trials)
    )
    return max(counts, key=lambda name: (counts[name], name == USUAL), default=None)


def _cloud(group: Sequence[SearchTrials], axis: str, metric: str) -> dict:
    """The points of all trials that have the setting and a finite metric, by method."""
    entry = metric_entry(metric)
    factor = 100 if entry["percent"] else 1
    clouds = {one.method: [*_points(one, axis, metric, factor)] for one in group}
    values = [x for points in clouds.values() for x, _, _ in points]
    log = bool(values) and 0 < 8 * min(values) < max(values)
    y = f"{entry['label']}, %" if entry["percent"] else entry["label"]
    series = [
        {"method": name, "text": name, "points": points}
        for name, points in clouds.items()
        if points
    ]
    return {"x": axis, "y": y, "log": log, "series": series}


def _points(search: SearchTrials, axis: str, metric: str, factor: int) -> Iterator[Point]:
    for trial in search.trials:
        x, y = (finite_number(trial.get(name, "")) for name in (axis, metric))
        if x is not None and y is not None:
            yield x, factor * y, f"trial {trial[TRIAL]}: {_settings(search, trial)}"


def _settings(search: SearchTrials, trial: dict[str, str]) -> str:
    return ", ".join(f"{name.partition('.')[2] or name} {trial[name]}" for name in search.settings)
