"""The picture of a figure to be rerun, by its kind, and the numbers in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from dpbench.config.buildable import TARGET, check, check_settings
from dpbench.errors import UserError
from dpbench.figures.bands import band_grid, bands
from dpbench.figures.curves import (
    USUAL,
    CurveFigure,
    CurvePanel,
    curve_points,
    draw_curves,
    panel_of,
)
from dpbench.figures.heat import draw_heat, heat_grids, heat_points
from dpbench.figures.lines import FigureSpec, Panel, draw, points
from dpbench.figures.reliability import (
    HISTOGRAMS,
    draw_histograms,
    draw_reliability,
    histogram_points,
    reliability_points,
)
from dpbench.records.divergence import DIVERGED, dropped, note
from dpbench.records.record import Record
from dpbench.reproduce.target import Target
from dpbench.tables import PAPER_SCALE, row_name
from dpbench.tables.grid import Grid
from dpbench.validate import one_of, typed


@dataclass(frozen=True)
class Picture:
    """A figure as a PNG, everything that is drawn in it, and what of that is worth a table."""

    png: bytes
    numbers: pd.DataFrame
    grids: tuple[Grid, ...] = ()


def picture(wanted: Target, records: list[Record], impossible: Mapping[str, str]) -> Picture:
    """The figure of a target; impossible: why rows are not there, by name.

    Which of KINDS it is, its specification says: without a word, `series`.
    """
    kind = one_of("table.figure.kind", wanted.table["figure"].get("kind", "series"), KINDS)
    return KINDS[kind](wanted, records, impossible)


def check_figure(table: Mapping[str, Any]) -> None:
    """UserError, before any run is made, for a specification of a figure that nobody can draw."""
    figure = table["figure"]
    if TARGET in figure:
        check("table", figure)
        return
    kind = one_of("table.figure.kind", figure.get("kind", "series"), NEEDS)
    for key, hint in NEEDS[kind].items():
        if key not in figure:
            raise UserError(f"a figure of kind {kind} needs table.figure.{key}.")
        typed(f"table.figure.{key}", figure[key], hint)
        if not figure[key]:
            raise UserError(f"table.figure.{key} is empty: there is nothing to draw.")
    varied = {key for block in table.get("conditions", ()) for key in block}
    for axis in ("x", "y") if kind == "heat" else ():
        one_of(f"table.figure.{axis}", figure[axis], varied)
    for number, row in enumerate(figure["rows"] if kind == "series" else ()):
        check_settings(Panel, row, f"table.figure.rows[{number}].")
    for number, row in enumerate(figure["panels"] if kind == "curves" else ()):
        check_settings(CurvePanel, {**USUAL, **row}, f"table.figure.panels[{number}].")
    if len(table.get("groups", ())) != len(table.get("group_numbers", ())):
        raise UserError("table.groups and table.group_numbers must be as many.")


def remarks(wanted: Target, records: Iterable[Record]) -> list[str]:
    """Sentences on the runs that diverged, where curves end and diagrams leave them out, and on
    gradients that counted as zero."""
    ended: dict[str, list[int]] = {}
    counts: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        row = row_name(wanted.condition_of(record.config), wanted.method_of(record.config))
        counts.setdefault(row, []).append((record.config["seed"], dropped(record)))
        if record.status == DIVERGED:
            ended.setdefault(row, []).append(record.config["seed"])
    return [
        *(
            f"{row} diverged with seed {', '.join(map(str, sorted(of)))}."
            for row, of in sorted(ended.items())
        ),
        *filter(None, (note(row, of) for row, of in sorted(counts.items()))),
    ]


def _series(wanted: Target, records: list[Record], impossible: Mapping[str, str]) -> Picture:
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
        scale_label=wanted.scale_label,
        x=table["figure"]["x"],
        x_scale=table["figure"].get("x_scale", "linear"),
        panels=tuple(Panel(**row) for row in rows),
        methods=tuple(possible),
        groups=dict(zip(table["groups"], table["group_numbers"], strict=True)),
    )
    # A group without an example in a batch has no number there.
    data = bands(points(spec, records), skip_nan=True)
    return Picture(draw(spec, data), data, (band_grid(data, spec.x),))


def _curves(wanted: Target, records: list[Record], impossible: Mapping[str, str]) -> Picture:
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
    data = bands(curve_points(spec, named), skip_nan=False)
    return Picture(draw_curves(spec, data), data, (band_grid(data, _x_of(spec)),))


def _x_of(spec: CurveFigure) -> str:
    return " or ".join(dict.fromkeys(panel.x for panel in spec.panels))


def _heat(wanted: Target, records: list[Record], impossible: Mapping[str, str]) -> Picture:
    figure = wanted.table["figure"]
    data = heat_points(records, figure["x"], figure["y"], figure["panels"])
    drawn = draw_heat(data, _title(wanted), figure["x"], figure["y"], figure["panels"])
    return Picture(drawn, data, heat_grids(data, figure["x"], figure["y"], figure["panels"]))


def _reliability(wanted: Target, records: list[Record], impossible: Mapping[str, str]) -> Picture:
    data = reliability_points(_runs(wanted, records))
    return Picture(draw_reliability(data, _title(wanted)), data)


def _histogram(wanted: Target, records: list[Record], impossible: Mapping[str, str]) -> Picture:
    """One panel for each condition, in which runs are missing or not."""
    what, parts = wanted.table["figure"]["what"], []
    labels = [condition.label for condition in wanted.conditions]
    for label in labels:
        runs = _runs(wanted, [r for r in records if wanted.condition_of(r.config) == label])
        parts.append(histogram_points(runs, what).assign(panel=label))
    # An empty part has no types, and would take those of the others away.
    data = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    return Picture(draw_histograms(data, _title(wanted), HISTOGRAMS[what], labels), data)


def _runs(wanted: Target, records: list[Record]) -> dict[str, list[Record]]:
    """The runs that ended well by the label of their arm, in the order of the table."""
    runs: dict[str, list[Record]] = {_label(wanted, arm): [] for arm in wanted.table["methods"]}
    for record in sorted(records, key=lambda record: record.config["seed"]):
        if record.status != DIVERGED:
            runs[_label(wanted, wanted.method_of(record.config))].append(record)
    return {label: of for label, of in runs.items() if of}


def _label(wanted: Target, arm: str) -> str:
    return wanted.table["figure"].get("labels", {}).get(arm, arm)


def _title(wanted: Target) -> str:
    """The title; that of other runs than the paper's says so."""
    smaller = (
        ""
        if wanted.scale_label == PAPER_SCALE
        else f" (not the paper's runs: {wanted.scale_label})"
    )
    return wanted.title + smaller


NEEDS: dict[str, dict[str, Any]] = {
    "series": {"x": str, "rows": list[dict[str, Any]]},
    "curves": {"band": Literal["standard deviation", "range"], "panels": list[dict[str, Any]]},
    "heat": {"x": str, "y": str, "panels": dict[str, str]},
    "reliability": {},
    "histogram": {"what": Literal["confidence", "true_class"]},
}
"""What a figure must say, by its kind."""

KINDS = {
    "series": _series,
    "curves": _curves,
    "heat": _heat,
    "reliability": _reliability,
    "histogram": _histogram,
}
