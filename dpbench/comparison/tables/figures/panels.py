"""A figure by its file, and panels two side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from dpbench.runs.config.table_file import Lines, Scatter
from dpbench.runs.figures.formats import paper_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

F = TypeVar("F", Lines, Scatter)

BESIDE = 2
"""Panels side by side: the numbers of more would not be legible."""


@dataclass(frozen=True)
class FigureSpec(Generic[F]):
    """A figure of the kind in its file. arms: their labels by name; conditions: their labels;
    groups: their numbers by name; baseline: the arm without privacy."""

    name: str
    title: str
    file: F
    arms: Mapping[str, str]
    conditions: Sequence[str]
    groups: Mapping[str, int] = field(default_factory=dict)
    baseline: str = ""


def panels_beside(
    number: int, top: float, height: float, labels: tuple[str, str], sharey: bool = False
) -> tuple["Figure", "Sequence[Axes]"]:
    """A figure with so many panels, and these; heights in inches: of the rest, and of a panel.
    labels: of the x-axes, and of the y-axes on the left."""
    width = min(number, BESIDE)
    rows = math.ceil(number / width)
    figure = paper_figure(width, top + height * rows)
    axes = figure.subplots(rows, width, sharey=sharey, squeeze=False)
    for axis in axes.flat[:number]:
        axis.set_xlabel(labels[0])
    for axis in axes[:, 0]:
        axis.set_ylabel(labels[1])
    for axis in axes.flat[number:]:
        axis.set_visible(False)
    return figure, [*axes.flat[:number]]
