"""`dpbench table RESULTS`: the table of a sweep as Markdown, CSV and LaTeX, without a YAML file."""

import math
import re
import shlex
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpbench.comparison.compare.side import BySeed, value_in
from dpbench.comparison.compare.tuning import trials_by_task, validation_scores
from dpbench.comparison.tables.page import SUFFIXES, write_texts
from dpbench.comparison.tables.sweep.cells import (
    CellKey,
    SweepLayout,
    filter_records,
    group_runs,
    varied_settings,
)
from dpbench.comparison.tables.sweep.page import CELLS, SweepTable, metric_label
from dpbench.learning.metrics.registry import RANKED_BY, metric_of
from dpbench.runs.config.commands import TableCommand
from dpbench.runs.config.settings import split_settings
from dpbench.runs.records.collect import readable_records
from dpbench.runs.records.digest import group_of
from dpbench.runs.records.other_seeds import left_out
from dpbench.runs.records.record import Record
from dpbench.runs.records.sweep_list import read_list
from dpbench.system.arguments import key_values
from dpbench.system.errors import UserError, counted, nearest, print_message
from dpbench.system.files import check_replaceable, unwritable
from dpbench.system.grouping import grouped

BySetting = dict[str, list[Record]]
"""Runs by the name of their settings, budget included, but for the seed and the split."""

OF_SEARCHES = ("validation", "trial", "score_noise_multiplier")
"""The settings by which trials differ from the run that is made of the best."""

MACHINE = ("device", "threads")
"""What seconds are compared on, in the provenance of a record."""

SHARED = ("dataset", "model")
"""The groups whose option the title gives if all runs share it."""


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
    values, selecting = split_settings("table", TableCommand, rest)
    filters, path = key_values(selecting), Path(folder)
    out = values.out.with_suffix("") if values.out.suffix in SUFFIXES else values.out
    _check_own(out)
    rows, columns = (_once(text, _parts(text)) for text in (values.rows, values.columns))
    asked = (*filters, *rows, *columns, *re.findall(r"\w+", values.metrics))
    digests = read_list(path, values.sweep) if values.sweep else None
    runs = [record for record in readable_records(path) if not record.is_audit]
    selected = [run for run in runs if digests is None or run.digest in digests]
    if digests is not None and not selected:
        raise UserError(
            f"none of the {len(digests)} runs of sweep {values.sweep} has a record in {folder}."
        )
    records = filter_records(selected, filters, TableCommand.__struct_fields__)
    if values.best:
        records = _on_the_test_set(records)
    elif "validation" not in asked:
        records = _without_trials(records)
    limit = ""
    if seconds := values.seconds:
        records, limit = _within(seconds, records), f", in at most {seconds:g} s a run"
    metrics = _metrics(values.metrics or _usual(records), records)
    layout = SweepLayout(rows, columns, metrics, values.baseline, trials_by_task(runs))
    _check_baseline(layout, records)
    tried: Mapping[CellKey, int] = {}
    not_best: Sequence[CellKey] = ()
    if values.best:
        trials = [run for run in filter_records(runs, filters) if not run.is_tested]
        records, tried, not_best = _best_on_validation(records, trials, layout)
    cells = group_runs(records, layout)
    others = tuple(left_out(records, runs, metrics[0])) if metrics else ()
    title = f"{_title(records, layout)}{limit}"
    made = SweepTable(layout, cells, title, others, tried, not_best)
    write_texts(out, made.markdown, made.csv, made.latex)
    return made.markdown


def _check_baseline(layout: SweepLayout, records: Sequence[Record]) -> None:
    if not (baseline := layout.baseline):
        return
    methods = {record.config["choices"]["method"] for record in records}
    if baseline not in methods:
        raise UserError(
            f"no selected run has the method baseline={baseline}: {nearest(baseline, methods)}"
        )
    if methods == {baseline}:
        raise UserError(f"all selected runs are of the method baseline={baseline}.")
    if "method" not in (*layout.rows, *layout.columns):
        raise UserError(
            f"baseline={baseline} is a method that others are compared with: add method to rows or "
            "columns."
        )


def _without_trials(records: list[Record]) -> list[Record]:
    tested = [record for record in records if record.is_tested]
    if not tested or len(tested) == len(records):
        return records
    print_message(
        f"left out {counted(len(records) - len(tested), 'run')} with a validation split, such as "
        "trials of a search: validation=SHARE selects them."
    )
    return tested


def _check_own(out: Path) -> None:
    page, *_ = paths = [out.with_name(out.name + suffix) for suffix in SUFFIXES]
    for path in paths:
        check_replaceable(path)
    try:
        text = page.read_text(encoding="utf-8", errors="replace") if page.exists() else ""
    except OSError as error:
        raise unwritable(page, error, "out") from error
    own = text.rstrip().rpartition("\n\n")[2].startswith(CELLS)
    if not own and (found := [path for path in paths if path.exists()]):
        raise UserError(
            f"{found[0]} exists, and {page} is not a table of this command: give another out=NAME."
        )


def _on_the_test_set(records: Iterable[Record]) -> list[Record]:
    if not (found := [record for record in records if record.is_tested]):
        raise UserError(
            "best=validation chooses by runs with a validation split, and shows runs without one. "
            "There are none: rerun the best settings without validation=."
        )
    return found


def _best_on_validation(
    tested: Sequence[Record], trials: Sequence[Record], layout: SweepLayout
) -> tuple[list[Record], dict[CellKey, int], list[CellKey]]:
    """The runs of the chosen settings, how many were tried in each cell, and the cells in which the
    one shown is not the best of these.

    What counts is the table's first metric on validation, by the rule of `validation_scores`; the
    only tested setting of a cell is kept whatever its trials. UserError where there is nothing to
    choose by.
    """
    metric = f"validation/{layout.metrics[0].partition('/')[2]}" if layout.metrics else ""
    if metric_of(metric).better is None:
        raise UserError("best=validation needs a metric for which more, or less, is better.")
    if not trials:
        raise UserError("best=validation needs runs with a validation split: see dpbench search.")
    tried, chosen, not_best = _by_cell(trials, layout), [], []
    for cell, settings in _by_cell(tested, layout).items():
        scores = {name: _by_seed(runs, metric) for name, runs in tried.get(cell, {}).items()}
        valid = {
            name: own for name, own in scores.items() if not any(map(math.isnan, own.values()))
        }
        ranked = validation_scores(valid)
        both = [name for name in settings if name in ranked]
        if not both and len(settings) > 1:
            name = ", ".join(str(value) for key in cell for value in key) or "the table"
            raise UserError(
                f"none of the {len(settings)} tested settings of {name} has a trial with {metric}: "
                "search it, or select one setting."
            )
        shown = max(both, key=ranked.__getitem__) if both else next(iter(settings))
        chosen += settings[shown]
        if shown not in ranked or ranked[shown] < max(ranked.values()):
            not_best.append(cell)
    return chosen, {cell: len(names) for cell, names in tried.items()}, not_best


def _by_seed(runs: Iterable[Record], metric: str) -> BySeed:
    """The mean of a metric for each seed, with the sign by which more is better."""
    by_seed = grouped((run.seed, metric_of(metric).sign * value_in(run, metric)) for run in runs)
    return {seed: statistics.fmean(values) for seed, values in by_seed.items()}


def _by_cell(records: Iterable[Record], layout: SweepLayout) -> dict[CellKey, BySetting]:
    cells: dict[CellKey, BySetting] = {}
    for record in records:
        config = record.config
        name = group_of({**config, **dict.fromkeys(OF_SEARCHES)})
        cells.setdefault(layout.cell_of(config), {}).setdefault(name, []).append(record)
    return cells


def _within(seconds: float, records: Sequence[Record]) -> list[Record]:
    """The runs of settings that take at most so many seconds in the mean over their seeds;
    UserError where runs are of several machines, and where none is within."""
    machines = {str([record.provenance.get(name) for name in MACHINE]) for record in records}
    if len(machines) > 1:
        raise UserError(
            f"seconds={seconds:g} compares times on one machine, and these runs differ in "
            f"{' or '.join(MACHINE)}: select those of one."
        )
    taken = grouped((r.group, r.measured.get("seconds", math.inf)) for r in records)
    means = {settings: statistics.fmean(values) for settings, values in taken.items()}
    kept = [r for r in records if means[r.group] <= seconds]
    if not kept:
        raise UserError(
            f"no run takes at most seconds={seconds:g}: the fastest take {min(means.values()):.3g}."
        )
    return kept


def command_for(folder: Path, sweep: str, configs: Sequence[Mapping[str, Any]]) -> str:
    """The command that makes a table of a sweep, whose rows are all that differ but seeds. configs:
    those of its runs, as records keep them."""
    varied = sorted(varied_settings(configs), key=lambda key: (key != "method", key))
    rows = ",".join(varied) or TableCommand().rows
    return shlex.join(["dpbench", "table", str(folder), f"sweep={sweep}", f"rows={rows}"])


def _parts(text: str) -> list[str]:
    """What stands between commas, with or without brackets around all."""
    is_list = text.startswith("[") and text.endswith("]")
    return (text[1:-1] if is_list else text).split(",")


def _once(text: str, names: Iterable[str]) -> tuple[str, ...]:
    found = tuple(filter(None, names))
    if len({*found}) < len(found):
        raise UserError(f"{text} names something twice.")
    return found


def _metrics(text: str, records: Sequence[Record]) -> tuple[str, ...]:
    """The recorded names of metrics, of the test set unless a name says more; or UserError.

    The name of a group may have commas: of names that begin alike, the longest is meant.
    """
    known = {metric for record in records for metric in record.measured}
    parts, names = _parts(text), []
    while parts:
        ends = range(len(parts), 0, -1)
        found = ((_recorded(",".join(parts[:end]), known), end) for end in ends)
        name, end = next((pair for pair in found if pair[0]), ("", 1))
        if not name and parts[0]:
            names_of = {name.removeprefix("test/") for name in known}
            raise UserError(f"no record has the metric {parts[0]}: {nearest(parts[0], names_of)}")
        names.append(name)
        parts = parts[end:]
    return _once(text, names)


def _usual(records: Sequence[Record]) -> str:
    found = {
        next((name for name in RANKED_BY if _recorded(name, record.measured)), "")
        for record in records
    }
    return ",".join(name for name in RANKED_BY if name in found) or RANKED_BY[0]


def _recorded(name: str, known: Collection[str]) -> str:
    full_names = (name, f"test/{name}", f"validation/{name}")
    return next((full for full in full_names if full in known), "")


def _title(records: Sequence[Record], layout: SweepLayout) -> str:
    labels = ", ".join(dict.fromkeys(metric_label(name, records) for name in layout.metrics))
    keys = [key.rpartition(".")[2] for key in (*layout.rows, *layout.columns)]
    by = " and ".join(filter(None, (", ".join(keys[:-1]), *keys[-1:])))
    given = f" by {by}" if by else ""
    same = [{record.config["choices"][group] for record in records} for group in SHARED]
    shared = ", ".join(values.pop() for values in same if len(values) == 1)
    title = f"{labels[:1].upper()}{labels[1:]}{given}{f': {shared}' if shared else ''}"
    return " ".join(title.split())  # a group's name may have a line break
