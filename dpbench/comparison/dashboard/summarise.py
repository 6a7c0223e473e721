"""From records to the data of the page: one row per run, with the group and series of the run."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dpbench.comparison.compare.side import ELSEWHERE, shared_settings
from dpbench.comparison.compare.tuning import Setting
from dpbench.comparison.dashboard import controls
from dpbench.comparison.dashboard.answers import answer_view, answers
from dpbench.comparison.dashboard.board_view import board_view
from dpbench.comparison.dashboard.contests import BASELINES, Contest, contests
from dpbench.comparison.dashboard.documents import NOTHING, PublishedPages
from dpbench.comparison.dashboard.representative import budgets_of
from dpbench.comparison.dashboard.run_row import (
    ReportedRun,
    TableRow,
    display_name,
    places_of,
    reported_run,
    seven_digits,
)
from dpbench.comparison.dashboard.tables import reproduced, table_view
from dpbench.comparison.dashboard.values import SHOWN, metric_entry, sorted_names
from dpbench.comparison.tables.data import TableData
from dpbench.comparison.tables.figures.looks import looks
from dpbench.comparison.tables.page import ESCAPES
from dpbench.learning.metrics.students_t import two_sided
from dpbench.runs.records.collect import collect, no_records
from dpbench.runs.records.digest import budget_of, group_of, protocol_of, series_of
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, counted
from dpbench.system.grouping import grouped


class Summary:
    """The data of the page except for the texts of the records.

    Records are added one by one and not stored, as there may be more than fit into memory.
    command: see `CommandBuilder`. places: the rows of tables by the digest of a run.
    """

    def __init__(
        self,
        command: Callable[[dict], str],
        places: Mapping[str, Sequence[TableRow]] = MappingProxyType({}),
    ):
        self._command = command
        self._places = places
        self._runs: list[ReportedRun] = []
        self._hidden = 0
        self._names: dict[str, dict[str, Any]] = {}
        self._methods: dict[str, str] = {}
        # By facet and method: one configuration of each series.
        self._series: dict[tuple, dict[str, dict]] = defaultdict(dict)
        self._groups: dict[str, dict] = {}  # one configuration of each group

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, record: Record) -> bool:
        """Add the run of a record; false for one that is not shown."""
        config = record.config
        places = self._places.get(record.digest) or places_of(record)
        command = _command(config, self._command)
        run = reported_run(record, self._names_of(config), command, places)
        if run.is_of_another_condition:
            self._hidden += 1
            return False
        facet, method = run.row["facet"], run.row["method"]
        self._series[facet, method].setdefault(run.row["series"], config)
        self._groups.setdefault(run.row["group"], config)
        if method not in self._methods:
            self._methods[method] = display_name(config)
        self._runs.append(run)
        return True

    def _names_of(self, config: dict) -> dict[str, Any]:
        key = json.dumps({**config, "seed": None}, sort_keys=True)
        if key not in self._names:
            self._names[key] = {
                "group": group_of(config),
                "series": series_of(config),
                "tried": Setting.of(config),
                "protocol": protocol_of(config),
                "budget": budget_of(config),
                "shared": shared_settings(config),
            }
        return self._names[key]

    def data(
        self,
        tables: Mapping[str, TableData],
        unreadable: Sequence[Unreadable],
        published: PublishedPages = NOTHING,
    ) -> dict:
        """The data as plain JSON without NaN; to be called once, after the last record."""
        # The groups with the setting of a method on one of the boards.
        best = {g.name for one in self.contests for c in one.candidates for g in c.alike}
        names = sorted_names({name for run in self._runs for name in run.metrics})
        rows = sorted(self._rows(names, best), key=_sort_key)
        entries = [metric_entry(name) for name in names]
        swept = controls.swept_settings(self._series)
        others = sorted(published.methods - self._methods.keys())
        boards = [*self._boards()]
        longest = max(Counter(row["series"] for row in rows).values())
        return {
            "baseline": BASELINES[0],
            "t": [seven_digits(t) for t in map(two_sided, range(1, max(2, longest)))],
            "lead": self._lead(tables, unreadable),
            "metrics": entries,
            "accountants": SHOWN,
            "reasons": controls.REASONS,
            "methods": self._methods | dict(zip(others, others, strict=True)),
            "looks": {
                method: {"colour": f"c{look.colour}", "mark": look.mark}
                for method, look in looks([*self._methods, *others]).items()
            },
            "choices": controls.choices(entries, swept, boards),
            "filters": controls.filters(rows, self._methods, swept),
            "settings": controls.all_settings(self._groups),
            "latex": ESCAPES,
            "boards": boards,
            "rows": rows,
            "cards": published.cards({n: table_view(t, self._methods) for n, t in tables.items()}),
            "audits": published.audited,
            "unreadable": [[entry.source, entry.reason] for entry in unreadable],
        }

    @property
    def hidden(self) -> str:
        """A sentence on the runs that are not shown, if there are any."""
        if not self._hidden:
            return ""
        return f"{counted(self._hidden, 'run')} left out, as the setting {ELSEWHERE}."

    def _boards(self) -> Iterator[dict]:
        for answer in answers(self.contests):
            if answer.tasks or answer.idle:
                yield answer_view(answer, self._methods)
        for one in self.contests:
            for metric in one.metrics or [one.metric]:
                yield board_view(one.by(metric), self._methods)

    @cached_property
    def contests(self) -> list[Contest]:
        """The contests of all runs; to be asked for after the last record."""
        return contests(self._runs)

    def _lead(
        self, tables: Mapping[str, TableData], unreadable: Sequence[Unreadable]
    ) -> list[tuple[str, str]]:
        datasets = {run.row["dataset"] for run in self._runs} - {None}
        done, judged = reproduced(tables.values())
        counts = {
            "run": len(self._runs),
            "data set": len(datasets),
            "method": len(self._methods),
            "unreadable file": len(unreadable),
        }
        texts = [(str(n), noun if n == 1 else f"{noun}s") for noun, n in counts.items() if n]
        published = [(f"{done} of {judged}", "published numbers reproduced")] if judged else []
        return [*texts, *published]

    def _rows(self, names: Sequence[str], best: set[str]) -> Iterable[dict]:
        described = {
            (*key, name): text
            for key, series in self._series.items()
            for name, text in zip(series, controls.differences([*series.values()]), strict=True)
        }
        drawn = self._drawn(best)
        for run in self._runs:
            row, key = run.row, (run.row["facet"], run.row["method"])
            settings = described[(*key, row["series"])]
            yield {
                **row,
                "metrics": [_metric(run.metrics.get(name)) for name in names],
                "settings": settings,
                "name": " · ".join(filter(None, (self._methods[row["method"]], settings))),
                "curve": run.curve,
                "best": (*key, run.curve) in drawn,
            }

    def _drawn(self, best: set[str]) -> set[tuple[str, str, str]]:
        """The curve that is drawn of each facet and method: that of the baseline's protocol, then
        with the most groups on boards, budgets and runs; all of a method that has only trials."""
        drawn = set()
        of_methods = grouped(((r.row["facet"], r.row["method"]), r) for r in self._runs)
        protocols: dict[str, str] = {}
        for key in sorted(of_methods, key=lambda key: key[1] != BASELINES[0]):
            runs = of_methods[key]
            of_curves, budgets = grouped((run.curve, run) for run in runs), budgets_of(runs)
            weights = {
                curve: _weight(same, protocols.get(key[0], ""), best, budgets.get(curve, 0))
                for curve, same in of_curves.items()
            }
            widest = max(weights, key=lambda curve: weights[curve])
            protocols.setdefault(key[0], of_curves[widest][0].row["protocol"])
            drawn |= {(*key, curve) for curve in ([widest] if budgets else of_curves)}
        return drawn


def _weight(
    runs: Sequence[ReportedRun], protocol: str, best: set[str], budgets: int
) -> tuple[bool, int, int, int]:
    on_boards = {run.row["group"] for run in runs} & best
    return runs[0].row["protocol"] == protocol, len(on_boards), budgets, len(runs)


def summary_of(
    folder: Path,
    command: Callable[[dict], str],
    places: Mapping[str, Sequence[TableRow]],
    keep: Callable[[Record], None] = lambda record: None,
) -> tuple[Summary, list[Unreadable]]:
    """The summary of a results folder, each of whose records is given to `keep`, and what could not
    be read; UserError where there is no record."""
    summary, unreadable = Summary(command, places), []
    for entry in collect(folder):
        if isinstance(entry, Unreadable):
            unreadable.append(entry)
        elif summary.add(entry):
            keep(entry)
    if not len(summary):
        raise no_records(folder, unreadable)
    return summary, unreadable


def _metric(value: float | None) -> float | str | None:
    """The metric as the page's JSON, which has no number for what is not finite."""
    if value is None:
        return None
    return seven_digits(value) if math.isfinite(value) else "NaN"


def _sort_key(row: dict) -> tuple:
    epsilon = row["axis"]["pld"]
    budget = (1, 0.0) if isinstance(epsilon, str) else (0, epsilon)
    names = (row[name] for name in ("facet", "method", "settings"))
    seed = row["seed"]  # published records have none
    return *names, budget, row["group"], int(seed) if seed.isdigit() else -1


def _command(config: dict, command: Callable[[dict], str]) -> dict[str, str | None]:
    try:
        return {"command": command(config), "no_command": None}
    except UserError as reason:
        return {"command": None, "no_command": str(reason)}
