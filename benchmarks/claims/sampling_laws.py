"""Epsilons of the same training under several sampling laws, beside what Poisson reports."""

from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from matplotlib.figure import Figure
from msgspec import Meta

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import (
    Allocation,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Sampling,
    Step,
    TruncatedPoisson,
)
from dpbench.runs.figures.formats import images, legend_below, paper_figure, symbol, titled
from dpbench.step.mechanism.method import GRADIENT_SUM
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, Fraction, Positive, integer

from .shuffled import shuffled_lower_bound

MAX_STEPS = 100_000
"""The most steps of an epoch."""

STYLES = {
    "poisson": ("Poisson (what is reported)", "black", "-"),
    "truncated": ("truncated Poisson", "tab:blue", "--"),
    "allocation": ("allocation", "tab:green", "-."),
    "shuffled, at least": ("shuffled, at least", "tab:red", "-"),
    "shuffled, at most": ("shuffled, at most", "tab:red", ":"),
}
"""By column: label, colour and line."""


@dataclass(frozen=True)
class SamplingLawSettings:
    """The settings of the figure, for `size` examples.

    There is a panel for each noise multiplier and its number of epochs, and a point for each number
    of steps in an epoch. limit: of truncated batches, in multiples of the expected size.
    """

    size: Count
    delta: Fraction
    noise_multipliers: list[Positive]
    epochs: list[Count]
    steps: list[int]
    limit: Annotated[float, Meta(ge=1)]

    def __post_init__(self) -> None:
        if len(self.noise_multipliers) != len(self.epochs):
            raise UserError(
                "table.compute.noise_multipliers and epochs are the panels: give as many of each."
            )
        for steps in self.steps:
            integer("each of table.compute.steps", steps, 2, min(self.size, MAX_STEPS))


def epsilons(setup: SamplingLawSettings) -> pd.DataFrame:
    """A row for each panel and number of steps, with a column for each law of STYLES.

    All are by PLD, for adding and removing; for shuffled batches, for a gradient replaced by 0.
    """
    rows = []
    for sigma, epochs in zip(setup.noise_multipliers, setup.epochs, strict=True):
        at_most = _spent(Poisson(1.0), sigma, epochs, setup.delta)
        for steps in setup.steps:
            limit = round(setup.limit * setup.size / steps)
            laws: list[Sampling] = [
                Poisson(1 / steps),
                TruncatedPoisson(1 / steps, limit, setup.size),
                Allocation(steps),
            ]
            spent = [_spent(law, sigma, steps * epochs, setup.delta) for law in laws]
            at_least = shuffled_lower_bound(sigma, steps, epochs, setup.delta)
            batch = setup.size / steps
            rows.append((sigma, epochs, steps, batch, *spent, at_least, at_most))
    columns = ["noise multiplier", "epochs", "steps", "batch", *STYLES]
    return pd.DataFrame(rows, columns=columns)


def _spent(law: Sampling, sigma: float, steps: int, delta: float) -> float:
    release = Release(GRADIENT_SUM, GaussianMechanism(sigma))
    return pld(Ledger().after(Step(law, (release,)), steps), delta)


def sampling_laws(target: Target) -> dict[str, bytes]:
    """The files of the figure by suffix: page, numbers and image."""
    setup = target.computed_by(SamplingLawSettings)
    data = epsilons(setup)
    text = target.page(
        f"{target.table.paper}. Scale: {target.scale_label}. Epsilon by PLD of {setup.size} "
        f"examples at delta {setup.delta:g}; batches are truncated at {setup.limit:g} times their "
        "expected size.",
        _misreported(data),
        target.image,
        _grid(data),
        *target.table.notes,
    )
    csv = data.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    return {**text.files, "csv": csv.encode(), **images(_draw(target.title, data))}


SENTENCES = {
    "shuffled, at least": "Shuffled batches, accounted for as Poisson samples: it is too small",
    "truncated": "Truncated batches, accounted for as Poisson samples: what is proven is larger",
    "allocation": "Allocation, accounted for as Poisson samples: what is proven is larger",
}

LARGER = 1.001
"""Ratios of epsilons above this are not due to rounding."""


def _misreported(data: pd.DataFrame) -> str:
    """The number of settings where the account of Poisson samples is smaller, and the factor."""
    lines = []
    for law, sentence in SENTENCES.items():
        ratio = data[law] / data["poisson"]
        number = int((ratio > LARGER).sum())
        most = f", by a factor of up to {ratio.max():.3g}" if number else ""
        lines.append(f"- {sentence} in {number} of {len(data)} settings{most}.")
    return "\n".join(lines)


def _grid(data: pd.DataFrame) -> Grid:
    lines = [
        (f"{sigma:g}", f"{epochs:g}", f"{steps:g}", f"{batch:g}", *(f"{e:.3f}" for e in spent))
        for sigma, epochs, steps, batch, *spent in data.itertuples(index=False)
    ]
    head = ("noise multiplier", "epochs", "steps of an epoch", "batch size", *STYLES)
    return Grid("", head, tuple(lines))


def _draw(title: str, data: pd.DataFrame) -> Figure:
    panels = list(data.groupby(["noise multiplier", "epochs"], sort=False))
    figure = paper_figure(len(panels), 2.7)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, ((sigma, epochs), part) in zip(axes, panels, strict=True):
        for law, (label, color, line) in STYLES.items():
            axis.plot(part["steps"], part[law], linestyle=line, color=color, label=label)
        axis.fill_between(
            part["steps"], part["shuffled, at least"], part["shuffled, at most"],
            color="tab:red", alpha=0.1, linewidth=0,
        )  # fmt: skip
        axis.set(xscale="log", yscale="log", xlabel="steps of an epoch")
        axis.set_title(f"noise multiplier {sigma:g}, epochs: {epochs}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(symbol("epsilon"))
    legend_below(figure, axes)
    return titled(figure, title)
