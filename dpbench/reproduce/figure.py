"""Draws the figure of a target by its kind, and tabulates the numbers in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dpbench.config.buildable import TARGET, check, check_settings
from dpbench.config.names import method_name
from dpbench.figures.bands import band_grid, bands
from dpbench.figures.heat import draw_heat, heat_grids, heat_points
from dpbench.figures.lines import (
    Band,
    Columns,
    LineFigure,
    NamedRecord,
    Panel,
    draw_lines,
    line_points,
)
from dpbench.figures.reliability import (
    HISTOGRAMS,
    draw_histograms,
    draw_reliability,
    histogram_points,
    reliability_points,
)
from dpbench.figures.scatter import ScatterFigure, draw_scatter, scatter_grid, scatter_points
from dpbench.records.divergence import DIVERGED, nonfinite_gradients, note
from dpbench.records.record import Record
from dpbench.reproduce.search_trials import search_trials
from dpbench.reproduce.target import Target
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of, typed
from dpbench.tables.conditions import row_name
from dpbench.tables.grid import Grid
from dpbench.tables.spec import PAPER_SCALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure, the data drawn in it, and the grids for its page."""

    figure: "Figure"
    numbers: pd.DataFrame
    grids: tuple[Grid, ...] = ()


def picture(target: Target, records: list[Record]) -> Picture:
    """The figure of a target, of the kind in its specification, by default `lines`."""
    kind = one_of("table.figure.kind", target.table["figure"].get("kind", "lines"), KINDS)
    return KINDS[kind](target, records)


def check_figure(table: Mapping[str, Any]) -> None:
    """UserError, before any run, for an invalid specification of a figure."""
    figure = table["figure"]
    if TARGET in figure:
        check("table", figure)
        return
    kind = one_of("table.figure.kind", figure.get("kind", "lines"), NEEDS)
    for key, hint in NEEDS[kind].items():
        if key not in figure:
            raise UserError(f"a figure of kind {kind} needs table.figure.{key}.")
        typed(f"table.figure.{key}", figure[key], hint)
        if not figure[key]:
            raise UserError(f"table.figure.{key} is empty: there is nothing to draw.")
    varied = {key for block in table.get("conditions", ()) for key in block}
    for axis in ("x", "y") if kind == "heat" else ():
        one_of(f"table.figure.{axis}", figure[axis], varied)
    for number, panel in enumerate(figure["panels"] if kind == "lines" else ()):
        check_settings(Panel, panel, f"table.figure.panels[{number}].")
    if len(table.get("groups", ())) != len(table.get("group_numbers", ())):
        raise UserError("table.groups and table.group_numbers must have the same length.")


def remarks(target: Target, records: Iterable[Record]) -> list[str]:
    """Sentences on runs that diverged, whose curves end early, and on non-finite gradients."""
    diverged: dict[str, list[int]] = {}
    counts: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        row = row_name(target.condition_of(record.config), target.method_of(record.config))
        counts.setdefault(row, []).append((record.config["seed"], nonfinite_gradients(record)))
        if record.status == DIVERGED:
            diverged.setdefault(row, []).append(record.config["seed"])
    return [
        *(
            f"{row} diverged with seed {', '.join(map(str, sorted(seeds)))}."
            for row, seeds in sorted(diverged.items())
        ),
        *filter(None, (note(row, by_seed) for row, by_seed in sorted(counts.items()))),
    ]


def _lines(target: Target, records: list[Record]) -> Picture:
    table, figure = target.table, target.table["figure"]
    labels = figure.get("labels") or {method: method_name(method) for method in table["methods"]}
    groups = zip(table.get("groups", ()), table.get("group_numbers", ()), strict=True)
    spec = LineFigure(
        name=target.name,
        title=_title(target),
        columns=figure["columns"],
        band=figure["band"],
        panels=tuple(Panel(**panel) for panel in figure["panels"]),
        arms={arm: labels.get(arm, arm) for arm in table["methods"]},
        conditions=tuple(target.labels),
        groups=dict(groups),
    )
    # A group has no number at a step whose batch has none of its examples.
    by_group = spec.columns == "method"
    data = bands(line_points(spec, _named(target, records)), skip_nan=by_group)
    return Picture(draw_lines(spec, data), data, (band_grid(data, spec.x_label),))


def _heat(target: Target, records: list[Record]) -> Picture:
    figure = target.table["figure"]
    layout = (figure["x"], figure["y"], figure["panels"])
    data = heat_points(records, *layout)
    return Picture(draw_heat(data, _title(target), *layout), data, heat_grids(data, *layout))


def _scatter(target: Target, records: list[Record]) -> Picture:
    table, figure = target.table, target.table["figure"]
    labels = figure.get("labels", {})
    spec = ScatterFigure(
        title=_title(target),
        x=figure["x"],
        y=figure["y"],
        arms={arm: labels.get(arm, method_name(arm)) for arm in table["methods"]},
        baseline=table["baseline"],
        columns=tuple(target.labels),
    )
    data = scatter_points(spec, _named(target, records), search_trials(target))
    return Picture(draw_scatter(spec, data), data, (scatter_grid(spec, data),))


def _named(target: Target, records: list[Record]) -> list[NamedRecord]:
    return [
        (target.condition_of(record.config), target.method_of(record.config), record)
        for record in records
    ]


def _reliability(target: Target, records: list[Record]) -> Picture:
    data = reliability_points(_runs(target, records))
    return Picture(draw_reliability(data, _title(target)), data)


def _histogram(target: Target, records: list[Record]) -> Picture:
    """One panel for each condition that has runs."""
    variable, parts = target.table["figure"]["variable"], []
    labels = target.labels
    for label in labels:
        runs = _runs(target, [r for r in records if target.condition_of(r.config) == label])
        parts.append(histogram_points(runs, variable).assign(panel=label))
    # Concatenating an empty part, whose columns have no types, would change those of the others.
    data = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    panels = [label for label in labels if label in set(data["panel"])] or labels
    return Picture(draw_histograms(data, _title(target), HISTOGRAMS[variable], panels), data)


def _runs(target: Target, records: list[Record]) -> dict[str, list[Record]]:
    """The runs that did not diverge, by the label of their arm, in the order of the table."""
    runs: dict[str, list[Record]] = {_label(target, arm): [] for arm in target.table["methods"]}
    for record in sorted(records, key=lambda record: record.config["seed"]):
        if record.status != DIVERGED:
            runs[_label(target, target.method_of(record.config))].append(record)
    return {label: records for label, records in runs.items() if records}


def _label(target: Target, arm: str) -> str:
    return target.table["figure"].get("labels", {}).get(arm, arm)


def _title(target: Target) -> str:
    """The title, with a remark if the runs are not the paper's."""
    if target.scale_label == PAPER_SCALE or target.scale.name != PAPER_SCALE:
        return target.title
    return f"{target.title} (not the paper's runs: {target.scale_label})"


NEEDS: dict[str, dict[str, Any]] = {
    "lines": {"columns": Columns, "band": Band, "panels": list[dict[str, Any]]},
    "heat": {"x": str, "y": str, "panels": dict[str, str]},
    "scatter": {"x": str, "y": str, "searches": str},
    "reliability": {},
    "histogram": {"variable": Literal["confidence", "true_class"]},
}
"""The required keys of a figure and their types, by its kind."""

KINDS = {
    "lines": _lines,
    "heat": _heat,
    "scatter": _scatter,
    "reliability": _reliability,
    "histogram": _histogram,
}
