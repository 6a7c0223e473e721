"""The picture of a figure to be rerun, by its kind, and the numbers in it."""

from collections.abc import Iterable, Mapping

import pandas as pd

from dpbench.errors import UserError, nearest
from dpbench.figures.curves import CurveFigure, curve_points, draw_curves, panel_of
from dpbench.figures.heat import draw_heat, heat_points
from dpbench.figures.lines import FigureSpec, Panel, draw, points
from dpbench.figures.reliability import (
    HISTOGRAMS,
    draw_histograms,
    draw_reliability,
    histogram_points,
    reliability_points,
)
from dpbench.results import Record
from dpbench.tables import row_name
from dpbench.targets import Target


def picture(
    wanted: Target, records: list[Record], impossible: Mapping[str, str]
) -> tuple[pd.DataFrame, bytes]:
    """Every point of a figure and the figure as a PNG; impossible: why rows are not there, by name.

    Which of KINDS it is, its specification says: without a word, `series`.
    """
    kind = wanted.table["figure"].get("kind", "series")
    if kind not in KINDS:
        raise UserError(f"{wanted.name} is a figure of kind {kind}: {nearest(kind, KINDS)}")
    return KINDS[kind](wanted, records, impossible)


def diverged(wanted: Target, records: Iterable[Record]) -> list[str]:
    """Sentences on the runs that diverged: curves end there, and diagrams leave them out."""
    seeds: dict[str, list[int]] = {}
    for record in records:
        if record.status == "diverged":
            row = row_name(wanted.condition_of(record.config), wanted.method_of(record.config))
            seeds.setdefault(row, []).append(record.config["seed"])
    return [
        f"{row} diverged with seed {', '.join(map(str, sorted(of)))}."
        for row, of in sorted(seeds.items())
    ]


def _series(wanted: Target, records: list[Record], impossible: Mapping[str, str]):
    table, rows = wanted.table, wanted.table["figure"]["rows"]
    labels = [condition.label for condition in wanted.conditions]
    possible = [
        method
        for method in table["methods"]
        if not all(row_name(label, method) in impossible for label in labels)
    ]
    spec = FigureSpec(
        name=wanted.name,
        title=wanted.title,
        scale=wanted.scale,
        x=table["figure"]["x"],
        x_scale=table["figure"].get("x_scale", "linear"),
        panels=tuple(Panel(**row) for row in rows),
        methods=tuple(possible),
        groups=dict(zip(table["groups"], table["group_numbers"], strict=True)),
    )
    data = points(spec, records)
    return data, draw(spec, data)


def _curves(wanted: Target, records: list[Record], impossible: Mapping[str, str]):
    figure = wanted.table["figure"]
    spec = CurveFigure(
        name=wanted.name,
        title=_title(wanted),
        band=figure["band"],
        panels=tuple(panel_of(row) for row in figure["panels"]),
        arms={arm: _label(wanted, arm) for arm in wanted.table["methods"]},
        columns=tuple(condition.label for condition in wanted.conditions),
    )
    named = [
        (wanted.condition_of(record.config), wanted.method_of(record.config), record)
        for record in records
    ]
    data = curve_points(spec, named)
    return data, draw_curves(spec, data)


def _heat(wanted: Target, records: list[Record], impossible: Mapping[str, str]):
    figure = wanted.table["figure"]
    data = heat_points(records, figure["x"], figure["y"], figure["panels"])
    return data, draw_heat(data, _title(wanted), figure["x"], figure["y"], figure["panels"])


def _reliability(wanted: Target, records: list[Record], impossible: Mapping[str, str]):
    data = reliability_points(_runs(wanted, records))
    return data, draw_reliability(data, _title(wanted))


def _histogram(wanted: Target, records: list[Record], impossible: Mapping[str, str]):
    """One panel for each condition, in which runs are missing or not."""
    what, parts = wanted.table["figure"]["what"], []
    labels = [condition.label for condition in wanted.conditions]
    for label in labels:
        runs = _runs(wanted, [r for r in records if wanted.condition_of(r.config) == label])
        parts.append(histogram_points(runs, what).assign(panel=label))
    # An empty part has no types, and would take those of the others away.
    data = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    return data, draw_histograms(data, _title(wanted), HISTOGRAMS[what], labels)


def _runs(wanted: Target, records: list[Record]) -> dict[str, list[Record]]:
    """The runs that ended well by the label of their arm, in the order of the table."""
    runs: dict[str, list[Record]] = {_label(wanted, arm): [] for arm in wanted.table["methods"]}
    for record in sorted(records, key=lambda record: record.config["seed"]):
        if record.status != "diverged":
            runs[_label(wanted, wanted.method_of(record.config))].append(record)
    return {label: of for label, of in runs.items() if of}


def _label(wanted: Target, arm: str) -> str:
    return wanted.table["figure"].get("labels", {}).get(arm, arm)


def _title(wanted: Target) -> str:
    """The title; that of other runs than the paper's says so."""
    smaller = "" if wanted.scale == "paper" else f" (not the paper's runs: {wanted.scale})"
    return wanted.title + smaller


KINDS = {
    "series": _series,
    "curves": _curves,
    "heat": _heat,
    "reliability": _reliability,
    "histogram": _histogram,
}
