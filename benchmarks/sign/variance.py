"""Error rates of a private sign over accumulation, for gradients of several variances."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.runs.figures.formats import images, legend_below, paper_figure, titled
from dpbench.runs.records.epsilon import USUAL
from dpbench.system.validate import Count, Fraction, Positive

from .error_rates import LAWS, multiplier_of

WITHOUT = "without noise"
SIGNS = {
    "Gaussian": "Gaussian, account of the sign",
    "Laplace": "Laplace",
    "logistic": "logistic, account of the sign",
}
"""The laws of the figure, as they are called among LAWS."""

QUANTILES = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
"""Of the standard normal distribution: means over them are expectations to four digits."""


@dataclass(frozen=True)
class SignVarianceSettings:
    """The settings; signal and deviations in G, examples: those added up before one draw."""

    epsilon: Positive
    delta: Fraction
    dimension: Count
    signal: Positive
    deviations: dict[str, Positive]
    examples: list[Count]


def clipped_moments(mean: float, deviation: float) -> tuple[float, float]:
    """Mean and variance of a normal number that is clipped to [-1, 1]."""
    low, high = (-1 - mean) / deviation, (1 - mean) / deviation
    inside = stats.norm.cdf(high) - stats.norm.cdf(low)
    below, above = stats.norm.cdf(low), stats.norm.sf(high)
    at_low, at_high = stats.norm.pdf(low), stats.norm.pdf(high)
    first = mean * inside + deviation * (at_low - at_high)
    second = mean * first + deviation * (deviation * inside - at_low - at_high)
    clipped = above - below + first
    return clipped, below + above + second - clipped**2


def errors_by_variance(setup: SignVarianceSettings) -> pd.DataFrame:
    """Columns variance, law, examples, error: the probability of the wrong sign of a coordinate.

    The sum of the clipped gradients is taken to be normal, by the central limit.
    """
    scales = {
        name: multiplier_of(LAWS[known][1], setup.dimension, setup.epsilon, setup.delta)
        * setup.dimension**0.5
        for name, known in SIGNS.items()
    }
    rows = []
    for variance, deviation in setup.deviations.items():
        mean, spread = clipped_moments(setup.signal, deviation)
        for examples in setup.examples:
            sums = examples * mean + (examples * spread) ** 0.5 * QUANTILES
            without = stats.norm.sf(mean * (examples / spread) ** 0.5)
            rows.append((variance, WITHOUT, examples, float(without)))
            rows += [
                (variance, name, examples, float(LAWS[SIGNS[name]][0].sf(sums / scale).mean()))
                for name, scale in scales.items()
            ]
    return pd.DataFrame(rows, columns=["variance", "law", "examples", "error"])


def sign_variance(target: Target) -> dict[str, bytes]:
    """The files of the figure by suffix: page, numbers and image."""
    setup = target.computed_by(SignVarianceSettings)
    data = errors_by_variance(setup)
    text = target.page(
        f"{target.table.paper}. Scale: {target.scale_label}. One release of {setup.dimension} "
        f"signs at epsilon {setup.epsilon:g}, delta {setup.delta:g}.",
        target.image,
        _grid(setup, data),
        f"Epsilon: {USUAL}, without sampling, proven.",
        *target.table.notes,
    )
    csv = data.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    return {**text.files, "csv": csv.encode(), **images(_draw(target.title, setup, data))}


def _grid(setup: SignVarianceSettings, data: pd.DataFrame) -> Grid:
    """What clipping leaves of the signal, and the error rates in percent."""
    lines = []
    for (variance, law), rows in data.groupby(["variance", "law"], sort=False):
        left = clipped_moments(setup.signal, setup.deviations[variance])[0] / setup.signal
        rates = (f"{error:.1%}" for error in rows["error"])
        lines.append((f"{variance}, {law}", f"{left:.0%}", *rates))
    head = (
        "variance, noise",
        "signal after the clip",
        *(f"{n:,} examples" for n in setup.examples),
    )
    return Grid("", head, tuple(lines))


def _draw(title: str, setup: SignVarianceSettings, data: pd.DataFrame) -> Figure:
    figure = paper_figure(len(setup.deviations), 2.4)
    axes = figure.subplots(1, len(setup.deviations), sharey=True, squeeze=False)[0]
    styles = {WITHOUT: ":", "Gaussian": "-", "Laplace": "-.", "logistic": "--"}
    for axis, (variance, part) in zip(axes, data.groupby("variance", sort=False), strict=True):
        for law, rows in part.groupby("law", sort=False):
            axis.plot(rows["examples"], rows["error"], linestyle=styles[law], label=law)
        axis.set_title(f"{variance}: deviation {setup.deviations[variance]:g} G")
        axis.set(xscale="log", xlabel="examples per draw of noise")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("error rate of the sign")
    legend_below(figure, axes)
    return titled(figure, title)
