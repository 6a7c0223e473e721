"""Error rates of private signs in d dimensions, for noise laws at the same epsilon and delta."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.privacy.calibrate import calibrate
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Mechanism,
    Poisson,
    Release,
    Step,
)
from dpbench.runs.figures.formats import images, legend_below, paper_figure, titled
from dpbench.runs.records.epsilon import USUAL
from dpbench.system.validate import Count, Fraction, Positive, integer, number

SIGNED = partial(CoordinateMechanism, signed=True)

LAWS: dict[str, tuple[Any, Callable[[float, int], Mechanism]]] = {
    "Gaussian, account of the sum": (stats.norm, lambda m, d: GaussianMechanism(m)),
    "Gaussian, account of the sign": (stats.norm, partial(SIGNED, "gaussian")),
    "Laplace": (stats.laplace, partial(CoordinateMechanism, "laplace")),
    "logistic, account of the sum": (stats.logistic, partial(CoordinateMechanism, "logistic")),
    "logistic, account of the sign": (stats.logistic, partial(SIGNED, "logistic")),
}
"""By name: the distribution, and the mechanism for a noise multiplier and a dimension."""


MAX_POINTS = 10_000


@dataclass(frozen=True)
class SignErrorSettings:
    """The settings of the figure, with `points` signals, and of the table, with `table_signals`."""

    epsilon: Positive
    delta: Fraction
    dimensions: list[Count]
    largest_signal: Positive
    points: int
    table_signals: list[float]

    def __post_init__(self) -> None:
        integer("table.compute.points", self.points, 2, MAX_POINTS)
        for signal in self.table_signals:
            number("each of table.compute.table_signals", signal, 0, self.largest_signal)


def error_rates(
    epsilon: float, delta: float, dimensions: Sequence[int], signals: Sequence[float]
) -> pd.DataFrame:
    """Columns dimension, law, multiplier, signal, error: the probability of the wrong sign.

    One release without sampling, in which one example moves every coordinate by at most G. signal:
    of each coordinate's sum, in multiples of G sqrt(d), as is the scale of the noise.
    """
    rows = []
    for dimension in dimensions:
        for name, (law, mechanism) in LAWS.items():
            multiplier = multiplier_of(mechanism, dimension, epsilon, delta)
            errors = law.sf(np.array(signals) / multiplier)
            rows += [
                (dimension, name, multiplier, signal, float(error))
                for signal, error in zip(signals, errors, strict=True)
            ]
    return pd.DataFrame(rows, columns=["dimension", "law", "multiplier", "signal", "error"])


def multiplier_of(
    mechanism: Callable[[float, int], Mechanism], dimension: int, epsilon: float, delta: float
) -> float:
    """The noise multiplier of one release of d coordinates, without sampling, at epsilon by PLD."""

    def ledger_at(multiplier: float) -> Ledger:
        release = Release("sign", mechanism(multiplier, dimension))
        return Ledger().after(Step(Poisson(1.0), (release,)))

    return calibrate(ledger_at, epsilon, delta, "pld")


def sign_errors(target: Target) -> dict[str, bytes]:
    """The files of the figure by suffix: page, numbers and image."""
    setup, paper = target.computed_by(SignErrorSettings), target.table.paper
    signals = np.linspace(0, setup.largest_signal, setup.points).tolist()
    data = error_rates(setup.epsilon, setup.delta, setup.dimensions, signals)
    text = target.page(
        f"{paper}. Scale: {target.scale_label}. One release at epsilon {setup.epsilon:g}, delta "
        f"{setup.delta:g}; each law's scale by the tightest account there is here.",
        target.image,
        _error_grid(data, setup.table_signals),
        f"Epsilon: {USUAL}, without sampling, proven.",
        *target.table.notes,
    )
    csv = data.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    return {**text.files, "csv": csv.encode(), **images(_draw(target.title, data))}


def _error_grid(data: pd.DataFrame, signals: Sequence[float]) -> Grid:
    """The scales, and the error rates in percent at the signals of the table."""
    lines = []
    for (dimension, law, multiplier), rows in data.groupby(
        ["dimension", "law", "multiplier"], sort=False
    ):
        rates = np.interp(signals, rows["signal"], rows["error"])
        lines.append((str(dimension), str(law), f"{multiplier:.3f}", *(f"{e:.2%}" for e in rates)))
    head = ("dimension", "law", "scale / (G sqrt d)", *(f"error at {s:g}" for s in signals))
    return Grid("", head, tuple(lines))


def _draw(title: str, data: pd.DataFrame) -> Figure:
    panels = list(data.groupby("dimension", sort=False))
    figure = paper_figure(len(panels), 2.4)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    styles: tuple[Any, ...] = ("-", (0, (6, 1)), "--", "-.", ":")
    for axis, (dimension, part) in zip(axes, panels, strict=True):
        for (law, rows), style in zip(part.groupby("law", sort=False), styles, strict=True):
            axis.plot(rows["signal"], rows["error"], linestyle=style, label=law, linewidth=1.4)
        axis.set_title(f"d = {dimension}")
        axis.set_xlabel("signal / (G sqrt d)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("error rate of the sign")
    legend_below(figure, axes)
    return titled(figure, title)
