"""`dpbench table RESULTS`: the table of a sweep as Markdown, CSV and LaTeX, without a YAML file."""

import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpbench.config.names import method_name
from dpbench.errors import UserError, nearest, print_message
from dpbench.files import unwritable, write_atomically
from dpbench.metrics.registry import parse_name
from dpbench.records.collect import readable_records
from dpbench.records.epsilon import marked, rounded_up
from dpbench.records.record import Record
from dpbench.records.sweep_list import read_list
from dpbench.tables.counts import counted
from dpbench.tables.grid import NO_VALUE, Grid, number
from dpbench.tables.latex import tabular
from dpbench.tables.markdown import document, grid_lines
from dpbench.tables.privacy import TIGHTEST_COLUMN
from dpbench.tables.sweep import (
    Key,
    Mean,
    Runs,
    SweepLayout,
    Terms,
    filter_records,
    group_runs,
    value_of,
    varied_settings,
)
from dpbench.tables.tidy import csv_text
from dpbench.validate import is_number, key_values, path_of

DEFAULTS = {"sweep": "", "rows": "method", "columns": "", "metrics": "accuracy", "out": "table"}

EQUAL_BUDGETS = 1.05
"""The ratio up to which epsilons are those of one budget, as noise is calibrated to about 0.1%, and
by an accountant that need not be the one shown."""

SHARED = ("dataset", "model")
"""The groups whose option the title gives if all runs share it."""

SUFFIXES = (".md", ".csv", ".tex")

CELLS = "Cells: mean ± standard deviation (number of seeds)."

NOTE = (
    f"{CELLS} Bold: the best mean of the rows with an "
    "epsilon, where their epsilons agree within 5%, for one delta and unit. An epsilon is that of "
    "one run: it covers neither metrics nor a choice by them, nor statistics that data were "
    "prepared by, such as z-scores."
)

ONE_SPLIT = (
    "All seeds share one split into training and test rows, whose choice the deviations leave out; "
    "dataset.split_seed=null draws one for each seed."
)


def table(arguments: Sequence[str]) -> str:
    """Write OUT.md, OUT.csv and OUT.tex of the records of a folder; returns the Markdown.

    Raises UserError for a folder without records, for a sweep of another one, for settings and
    metrics that no record has, and where a cell would mix runs that differ by more than their seed.
    """
    folder, *rest = arguments or [""]
    if not folder or "=" in folder:
        key, _, value = folder.partition("=")
        given = value if key == "results_dir" else "results"
        raise UserError(
            f"table needs a folder first: dpbench table {given} rows=method columns=privacy."
        )
    filtered = {argument.partition("=")[0] for argument in rest}
    values = key_values("table", DEFAULTS, rest, known=filtered)
    out = path_of("out", values["out"], "file")
    if out.suffix in SUFFIXES:
        out = out.with_suffix("")
    filters = {key: value for key, value in values.items() if key not in DEFAULTS}
    runs = [record for record in readable_records(Path(folder)) if not record.is_audit]
    if values["sweep"]:
        runs = _of_sweep(runs, Path(folder), values["sweep"])
    records = filter_records(runs, filters)
    rows, columns = _names(values["rows"]), _names(values["columns"])
    asked = (*filters, *rows, *columns, *(name.split("/")[0] for name in _names(values["metrics"])))
    if "validation" not in asked:
        records = _without_trials(records)
    metrics = tuple(_metric(name, records) for name in _names(values["metrics"]))
    layout = SweepLayout(rows, columns, metrics)
    made = SweepTable(layout, group_runs(records, layout), _title(records, layout))
    _check_own(out)
    for suffix, text in zip(SUFFIXES, (made.markdown, made.csv, made.latex), strict=True):
        write_atomically(out.with_name(out.name + suffix), text.encode(), setting="out")
    print_message(f"written: {out}{{{','.join(SUFFIXES)}}}")
    return made.markdown


def _of_sweep(runs: Sequence[Record], folder: Path, name: str) -> list[Record]:
    """The runs of one sweep; UserError where none of them has a record."""
    digests = read_list(folder, name)
    if not (found := [run for run in runs if run.digest in digests]):
        raise UserError(
            f"none of the {len(digests)} runs of sweep {name} has a record in {folder}."
        )
    return found


def _without_trials(records: list[Record]) -> list[Record]:
    """The runs without a validation split, if there are some: the others are trials of a search."""
    tested = [record for record in records if record.config.get("validation") is None]
    if not tested or len(tested) == len(records):
        return records
    print_message(
        f"left out {counted(len(records) - len(tested), 'run')} with a validation split, such as "
        "trials of a search: validation=SHARE selects them."
    )
    return tested


def _check_own(out: Path) -> None:
    """UserError if one of the files exists, and is not of a table that this command wrote."""
    page, *others = (out.with_name(out.name + suffix) for suffix in SUFFIXES)
    try:
        text = page.read_text(encoding="utf-8", errors="replace") if page.exists() else ""
    except OSError as error:
        raise unwritable(page, error, "out") from error
    own = text.rstrip().rpartition("\n\n")[2].startswith(CELLS)
    if not own and (found := [path for path in (page, *others) if path.exists()]):
        raise UserError(
            f"{found[0]} exists, and {page} is not a table of this command: give another out=NAME."
        )


def command_for(folder: Path, sweep: str, configs: Sequence[Mapping[str, Any]]) -> str:
    """The command that makes a table of a sweep, whose rows are all that differ but seeds.

    configs: those of its runs, as records keep them.
    """
    varied = sorted(varied_settings(configs), key=lambda key: (key != "method", key))
    rows = ",".join(varied) or DEFAULTS["rows"]
    return shlex.join(["dpbench", "table", str(folder), f"sweep={sweep}", f"rows={rows}"])


@dataclass(frozen=True)
class SweepTable:
    """The runs of a table by row and column, and its title."""

    layout: SweepLayout
    runs: Mapping[tuple[Key, Key], Runs]
    title: str

    @property
    def markdown(self) -> str:
        return document(f"# {self.title}", grid_lines(self.grid), self._note)

    @property
    def latex(self) -> str:
        return tabular(f"{self.title}. {self._note}", self.grid) + "\n"

    @property
    def _note(self) -> str:
        note = NOTE
        if any(value_of(r.config, "dataset.split_seed") is not None for r in self._records):
            note = f"{note} {ONE_SPLIT}"
        shared = [name for name in Terms._fields if name not in self._varying]
        if not self._terms or not shared:
            return note
        return f"{note} All epsilons: {next(iter(self._terms)).text(shared)}."

    @property
    def _records(self) -> list[Record]:
        return [record for runs in self.runs.values() for record in runs.records]

    @property
    def _metric_labels(self) -> list[str]:
        return [_metric_label(name, self._records) for name in self.layout.metrics]

    @cached_property
    def _terms(self) -> set[Terms]:
        return {terms for runs in self.runs.values() if (terms := runs.terms)}

    @cached_property
    def _varying(self) -> list[str]:
        """The names of the terms in which epsilons of the table differ."""
        return [name for name in Terms._fields if len({getattr(t, name) for t in self._terms}) > 1]

    @property
    def csv(self) -> str:
        """A line for each row, column and metric; epsilon is empty where none may be shown."""
        numbers = ("metric", "mean", "sd", "n", "epsilon", "delta", "unit", "guarantee")
        head = (*self.layout.rows, *self.layout.columns, *numbers)
        return csv_text(head, self._lines())

    @property
    def grid(self) -> Grid:
        """The table, its best means between **."""
        rows = tuple(tuple(self._texts(row)) for row in self.rows)
        return Grid("", tuple(self._head()), rows)

    def _texts(self, row: Key) -> Iterator[str]:
        yield from (_label(key, v) for key, v in zip(self.layout.rows, row, strict=True))
        for column in self.columns:
            runs = self.runs.get((row, column))
            for name in self.layout.metrics:
                text = _text(runs.mean(name), name) if runs else NO_VALUE
                yield f"**{text}**" if row in self._best[column, name] else text
            yield self._epsilon(runs) if runs else NO_VALUE

    def _epsilon(self, runs: Runs) -> str:
        """The epsilon, with the terms in which others in the table differ."""
        epsilon, terms = runs.epsilon, runs.terms
        if isinstance(epsilon, str) or terms is None:
            return str(epsilon)
        shown = marked(rounded_up(epsilon), runs.guarantee)
        return f"{shown} ({terms.text(self._varying)})" if self._varying else shown

    @cached_property
    def _best(self) -> dict[tuple[Key, str], set[Key]]:
        """By column and metric, the rows with the best mean."""
        pairs = itertools.product(self.columns, self.layout.metrics)
        return {(column, name): self._best_rows(column, name) for column, name in pairs}

    @property
    def rows(self) -> list[Key]:
        return sorted({row for row, _ in self.runs}, key=_order)

    @property
    def columns(self) -> list[Key]:
        return sorted({column for _, column in self.runs}, key=_order)

    def _head(self) -> Iterator[str]:
        yield from (key.rpartition(".")[2] for key in self.layout.rows)
        for column in self.columns:
            named = zip(self.layout.columns, column, strict=True)
            values = [_label(key, value, named=True) for key, value in named]
            for name in (*self._metric_labels, f"epsilon ({TIGHTEST_COLUMN})"):
                yield ", ".join([*values, name])

    def _best_rows(self, column: Key, name: str) -> set[Key]:
        """The rows with the best mean, as it is shown, of those with an epsilon on equal terms."""
        terms = {runs.terms for (_, at), runs in self.runs.items() if at == column and runs.terms}
        metric = parse_name(name).metric
        means = {
            row: runs.mean(name).value
            for (row, at), runs in self.runs.items()
            if at == column and not isinstance(runs.epsilon, str)
        }
        means = {row: value for row, value in means.items() if not math.isnan(value)}
        epsilons = [float(self.runs[row, column].epsilon) for row in means]
        if epsilons and max(epsilons) > EQUAL_BUDGETS * min(epsilons):
            return set()
        if metric is None or metric.better is None or len(means) < 2 or len(terms) > 1:
            return set()
        best = max(means.values(), key=lambda mean: metric.sign * mean)
        shown = number(best, metric.digits)
        return {row for row, value in means.items() if number(value, metric.digits) == shown}

    def _lines(self) -> Iterator[tuple[str, ...]]:
        for row in self.rows:
            for column in self.columns:
                if runs := self.runs.get((row, column)):
                    terms = ("", "", "")
                    if runs.terms:
                        terms = (f"{runs.epsilon:.6g}", f"{runs.terms.delta:g}", runs.terms.unit)
                    for name in self.layout.metrics:
                        mean, spread, n = runs.mean(name)
                        numbers = (f"{mean:.6g}", f"{spread:.6g}", str(n))
                        yield (*map(str, (*row, *column)), name, *numbers, *terms, runs.guarantee)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.strip("[]").split(",")))
    if len({*names}) < len(names):
        raise UserError(f"{text} names something twice.")
    return names


def _metric(name: str, records: Sequence[Record]) -> str:
    """The recorded name of a metric, of the test set unless its name says more; or UserError."""
    known = {metric for record in records for metric in record.measured}
    for full in (name, f"test/{name}", f"validation/{name}"):
        if full in known:
            return full
    raise UserError(f"no record has the metric {name}: {nearest(name, known)}")


def _title(records: Sequence[Record], layout: SweepLayout) -> str:
    """The metrics, what they are given by, and the data set and model if they are the same."""
    labels = ", ".join(dict.fromkeys(_metric_label(name, records) for name in layout.metrics))
    keys = [key.rpartition(".")[2] for key in (*layout.rows, *layout.columns)]
    by = " and ".join(filter(None, (", ".join(keys[:-1]), *keys[-1:])))
    given = f" by {by}" if by else ""
    same = [{record.config["choices"][group] for record in records} for group in SHARED]
    shared = ", ".join(values.pop() for values in same if len(values) == 1)
    return f"{labels[:1].upper()}{labels[1:]}{given}{f': {shared}' if shared else ''}"


def _metric_label(name: str, records: Iterable[Record]) -> str:
    """`accuracy (%)`, with the group and the split unless it is the test set.

    The losses of regression are squares of the target's unit, and not in nats.
    """
    parts = parse_name(name)
    metric = parts.metric
    split = parts.split if parts.split != "test" else ""
    words = [metric.label if metric else parts.base, parts.group, split]
    unit = {"percent": " (%)", "nats": " (nats)"}.get(metric.unit if metric else "", "")
    if metric and metric.unit == "nats" and any("test/rmse" in r.metrics for r in records):
        unit = ""
    return f"{', '.join(filter(None, words))}{unit}"


def _label(key: str, value: Any, named: bool = False) -> str:
    """A value of a setting; named: a number with the name of the setting."""
    if key == "method":
        return method_name(str(value))
    if value is None:
        return NO_VALUE
    if not is_number(value):
        return str(value)
    return f"{key.rpartition('.')[2]} {value:g}" if named else f"{value:g}"


def _text(mean: Mean, name: str) -> str:
    metric = parse_name(name).metric
    digits = metric.digits if metric else None
    spread = "" if math.isnan(mean.spread) else f" ± {number(mean.spread, digits)}"
    return f"{number(mean.value, digits)}{spread} ({mean.n})"


def _order(key: Key) -> list[tuple[bool, float, str]]:
    """Numbers by size, then texts by name."""
    return [(not is_number(v), float(v) if is_number(v) else 0.0, str(v)) for v in key]
