"""The published pages of a results folder as cards: figures, audits, checks, and its searches."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from dpbench.comparison.dashboard.values import DASH, SHOWN, finite_number, metric_entry, with_unit
from dpbench.comparison.search.selection import ACCURACY, LOSS
from dpbench.comparison.tables.data import SearchData, TableData, read_json
from dpbench.runs.records.epsilon import REFUTED, rounded_up
from dpbench.runs.records.folder import SEARCH, TABLES
from dpbench.runs.records.reading import Unreadable, text_of
from dpbench.system.csv_lines import csv_lines, csv_rows
from dpbench.system.errors import UserError, counted
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped
from dpbench.system.paths import benchmarks_folder

MOST_LINES = 200
"""The most lines of a CSV file that are numbers to read, and not the points of a figure."""

MOST_BYTES = 6_000_000
"""Of all pictures, before they are compressed."""

CITATION = "citation.yaml"
"""In the folder of a study: its title and its link."""

OTHERS = "Tables of your own"

Card = dict
"""What the page folds: `title`; `tally` and `claims` of a table; `notes`, sentences; `command`;
`image`, the name of a picture; `cloud`, points to draw; `head` and `rows` of a table; `run`, false
where there is nothing of ours."""

NAMES_OF_AUDITS = ("method", "attacked", "by", "verdict")
"""The columns of an audit that are words."""

BOUNDS = ("audited (own family)", "audited (GDP)", "audited (one run)")
"""The columns of lower bounds, the first of which counts where it has one."""


def card(title: str, **parts: object) -> Card:
    """A card, empty but for the parts."""
    lists = dict.fromkeys(("tally", "claims", "notes", "head", "rows"), ())
    return {"title": title, "run": True, "command": None, **lists, **parts}


def pictures(folder: Path) -> dict[str, str]:
    """The pictures in `tables/*.svg` by name, up to MOST_BYTES, the smallest first."""
    files = filter(Path.is_file, files_in(folder / TABLES, "*.svg"))
    paths = sorted(files, key=lambda path: path.stat().st_size)
    found: dict[str, str] = {}
    size = 0
    for path in paths:
        text = text_of(path)
        if isinstance(text, str) and (size := size + len(text)) <= MOST_BYTES:
            found[path.stem] = text
    return found


AUDIT, FINDINGS = "audit", "findings"
"""The pages of the table of audits, and of what all tables say."""


@dataclass(frozen=True)
class PublishedPages:
    """What a results folder publishes beside records and tables.

    documents: by name. drawings: SVG by name. audited: rows like those of runs.
    """

    documents: Mapping[str, Card]
    searches: Sequence[Card]
    audited: Sequence[dict]
    drawings: Mapping[str, str]

    @property
    def methods(self) -> set[str]:
        """What is drawn of searches and audits, by the name of its method."""
        clouds = (one["cloud"] for one in self.searches if one["cloud"])
        searched = {series["method"] for cloud in clouds for series in cloud["series"]}
        return searched | {row["method"] for row in self.audited}

    def cards(self, tables: Mapping[str, Card]) -> dict[str, list]:
        """All cards by the part of the page that they are in. tables: by name."""
        named = {**tables, **self.documents}
        studies = {name: study_of(name) for name in named}
        checks = {name: self.documents[name] for name in self.documents if not studies[name]}
        audits = [checks.pop(AUDIT)] if AUDIT in checks else []
        found = [checks.pop(FINDINGS)] if FINDINGS in checks else []
        of_study = grouped(
            (studies[name] or "", one)
            for name, one in named.items()
            if studies[name] or name in tables
        )
        return {
            "studies": [
                *({"title": card["title"], "link": None, "cards": [card]} for card in found),
                *(citation(name) | {"cards": of_study[name]} for name in sorted(of_study)),
            ],
            "searches": [*self.searches],
            "audits": audits,
            "checks": [*checks.values()],
        }


NOTHING = PublishedPages({}, (), (), {})


def published(folder: Path, pages: Mapping[str, TableData]) -> PublishedPages:
    """What the folder publishes beside records and tables of cells."""
    drawings = pictures(folder)
    documents = {
        name: _document(folder, name, page, drawings)
        for name, page in pages.items()
        if not page.cells
    }
    return PublishedPages(documents, searches(folder), audited(folder), drawings)


def study_of(name: str) -> str | None:
    """The folder of `benchmarks` with which the name of a table begins."""
    study = name.partition("_")[0]
    return study if (benchmarks_folder() / study / CITATION).is_file() else None


@functools.cache
def citation(study: str) -> dict[str, str | None]:
    """The paper that a study is of, with its link; of a study of ours, what it is on.

    "" stands for tables of no study.
    """
    if not study:
        return {"title": OTHERS, "link": None}
    return yaml.safe_load((benchmarks_folder() / study / CITATION).read_text(encoding="utf-8"))


def _document(folder: Path, name: str, page: TableData, drawings: Mapping[str, str]) -> Card:
    path = folder / TABLES / f"{name}.csv"
    try:
        head, *rows = csv_rows(text_in(path), path.name) or [[]]
    except UserError:
        head, rows = [], []
    if not 0 < len(rows) < MOST_LINES:
        head, rows = [], []
    return card(
        page.title,
        notes=[_plain(note) for note in page.notes],
        command=page.command or None,
        image=name if name in drawings else None,
        head=head,
        rows=rows,
    )


def _lines_in(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The lines of a CSV file by column; none of one that is damaged or lacks a column."""
    try:
        return csv_lines(text_in(path), path.name, columns)
    except UserError:
        return []


def text_in(path: Path) -> str:
    """The text of a file; "" of one that is missing or cannot be read."""
    text = text_of(path)
    return text if isinstance(text, str) else ""


def _plain(text: str) -> str:
    unlinked = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[*`]", "", unlinked).split())


def audited(folder: Path) -> list[dict]:
    """A row for each line of `tables/audit.csv` with a claim and a bound."""
    lines = _lines_in(folder / TABLES / f"{AUDIT}.csv", ("claimed", *NAMES_OF_AUDITS))
    return [row for line in lines if (row := _row(line))]


def _row(line: dict[str, str]) -> dict | None:
    claimed, *found = (finite_number(line.get(name) or "") for name in ("claimed", *BOUNDS))
    bound = next((number for number in found if number is not None), None)
    if claimed is None or bound is None:
        return None
    return {
        "id": None,
        "method": line["method"],
        "name": f"{line['method']}, {line['attacked']}",
        "seed": "–",
        "axis": dict.fromkeys(SHOWN, claimed),
        "epsilon": dict.fromkeys(SHOWN, f"{rounded_up(claimed)} by {line['by']}"),
        "audit": {"epsilon": bound, "refuted": claimed if line["verdict"] == REFUTED else None},
    }


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
    search = read_json(path.with_suffix(".json"), SearchData)
    if isinstance(search, Unreadable):
        return
    settings = [setting for setting in search.ranges if setting != METHOD]
    task = [name for group, name in search.choices.items() if group != METHOD]
    method = search.choices.get(METHOD)
    named = () if method else (METHOD,)
    lines = _lines_in(path, (TRIAL, ACCURACY, LOSS, *search.ranges, *named))
    for name, trials in grouped((method or line[METHOD], line) for line in lines).items():
        arm, study = _names(path.stem, task, name)
        yield SearchTrials(study, arm, trials, settings, str(search.chosen))


def _names(file: str, task: Sequence[str], method: str) -> tuple[str, str]:
    table, *parts = file.split("-")
    arm = next((part for part in parts if part.startswith(method)), method)
    marks = [part for part in parts if part not in (*task, arm)]
    return ", ".join([arm, *marks]), f"{table}: {', '.join(task)}"


def _card(study: str, group: Sequence[SearchTrials]) -> Card:
    has_accuracy = any(trial[ACCURACY] for trial in group[0].trials)
    metric = ACCURACY if has_accuracy else LOSS
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
    chosen = next((one for one in search.trials if one[TRIAL] == search.chosen), None)
    if chosen is None:
        return DASH, DASH
    percent = metric_entry(metric)["percent"]
    setting = _settings(search, chosen) or f"trial {search.chosen}"
    return setting, with_unit(finite_number(chosen.get(metric, "")), percent)


def _axis(group: Sequence[SearchTrials]) -> str | None:
    counts = Counter(
        name
        for one in group
        for name in one.settings
        if all(finite_number(trial.get(name, "")) is not None for trial in one.trials)
    )
    return max(counts, key=lambda name: (counts[name], name == USUAL), default=None)


def _cloud(group: Sequence[SearchTrials], axis: str, metric: str) -> dict:
    entry = metric_entry(metric)
    factor = 100 if entry["percent"] else 1
    clouds = {one.method: [*_points(one, axis, metric, factor)] for one in group}
    values = [x for points in clouds.values() for x, _, _ in points]
    log = bool(values) and 0 < 8 * min(values) < max(values)
    y = f"{entry['label']}, %" if entry["percent"] else entry["label"]
    drawn = {name: points for name, points in clouds.items() if points}
    series = [{"method": n, "text": n, "points": points} for n, points in drawn.items()]
    return {"x": axis, "y": y, "log": log, "series": series}


def _points(search: SearchTrials, axis: str, metric: str, factor: int) -> Iterator[Point]:
    for trial in search.trials:
        x, y = (finite_number(trial.get(name, "")) for name in (axis, metric))
        if x is not None and y is not None:
            yield x, factor * y, f"trial {trial[TRIAL]}: {_settings(search, trial)}"


def _settings(search: SearchTrials, trial: dict[str, str]) -> str:
    return ", ".join(f"{name.partition('.')[2] or name} {trial[name]}" for name in search.settings)
