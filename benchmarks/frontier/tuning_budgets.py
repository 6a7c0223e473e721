"""What searches of fewer trials would have found, and what each would cost if it were private."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.search.selection import budgets, expected_best, shares
from dpbench.comparison.search.start import NUMBER
from dpbench.comparison.tables.grid import Grid
from dpbench.learning.metrics.registry import metric_of
from dpbench.privacy.private_selection import Repetitions, selection_costs
from dpbench.runs.config.table_rules import trials_of
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.figures.formats import images, legend_below, paper_figure, titled
from dpbench.runs.records.epsilon import rounded_up

RESAMPLES, LEVEL = 1000, 0.95


@dataclass(frozen=True)
class TuningBudgetSettings:
    """The settings of the figure.

    table: whose searches are read; metrics: of the validation split, a row of panels each, and of
    those in which lower is better the value of the trial that the first would choose, as a model
    that has learnt nothing may have the lowest ECE; highlight: the arms that are drawn in colour;
    score_noise_multiplier: of the scores of a private search; trials: of each search, how many are
    used, as those that `extend` added are no draws from the same ranges.
    """

    table: str
    metrics: list[str]
    highlight: list[str]
    score_noise_multiplier: float = 10.0
    trials: int = 64


def tuning_budgets(target: Target) -> dict[str, bytes]:
    """The files of the figure by suffix: page, numbers and image."""
    setup = target.computed_by(TuningBudgetSettings)
    tuned = target_of(setup.table, [])
    data = pd.DataFrame(_points(tuned, setup))
    scored = ["validation=0.2", f"score_noise_multiplier={setup.score_noise_multiplier}"]
    costs = {
        c.label: private_costs(
            next(tuned.cells_of(c, "dpsgd")) + scored, sorted(set(data["trials"]))
        )
        for c in tuned.conditions
    }
    data["private_epsilon"] = [
        costs[condition][trials]
        for condition, trials in zip(data["condition"], data["trials"], strict=True)
    ]
    text = target.page(
        f"{target.table.paper}.",
        target.image,
        *(_grid(data, metric, costs) for metric in setup.metrics),
        *target.table.notes,
    )
    csv = data.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    return {**text.files, "csv": csv.encode(), **images(_draw(target.title, data, setup))}


def _points(tuned: Target, setup: TuningBudgetSettings) -> Iterator[dict]:
    """For each row, metric and number of trials, the expected best with its interval."""
    for condition in tuned.conditions:
        for arm in tuned.table.ready:
            (search,) = tuned.searches[condition.label, arm]
            found = trials_of(search)
            trials = [trial for trial in found if NUMBER < int(trial["trial"]) <= setup.trials]
            for metric in setup.metrics:
                values, scores = _values(trials, metric, setup.metrics[0])
                for count in budgets(len(values)):
                    low, high = interval(values, count, scores)
                    yield {
                        "condition": condition.label,
                        "arm": arm,
                        "metric": metric,
                        "trials": count,
                        "expected_best": expected_best(values, count, scores),
                        "low": low,
                        "high": high,
                    }


def _values(
    trials: list[dict[str, str]], metric: str, first: str
) -> tuple[list[float], list[float]]:
    """A metric of all trials that have it, and the scores by which the best is chosen."""
    by = first if _is_cost(metric) else metric
    both = [(float(t[metric]), float(t[by])) for t in trials if t.get(metric) and t.get(by)]
    return [value for value, _ in both], [score for _, score in both]


def _is_cost(metric: str) -> bool:
    return metric_of(metric).better == "lower"


def interval(
    values: list[float], count: int, scores: list[float] | None = None
) -> tuple[float, float]:
    """The percentile bootstrap of the expected best of `count` over the trials that were made.

    For counts near their number it is too narrow: nothing better than the best of them is drawn.
    """
    draws = np.random.default_rng(0).choice(len(values), (RESAMPLES, len(values)))
    order = np.argsort(np.asarray(scores or values)[draws], axis=1, kind="stable")
    ranked = np.asarray(values)[np.take_along_axis(draws, order, axis=1)]
    found = ranked @ shares(len(values), count)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def private_costs(overrides: list[str], counts: list[int]) -> dict[int, float]:
    """The epsilon of a private search of a geometric number of trials with each mean, of which one
    trial is a run with a noisy score, which is part of its epsilon; of one trial, its own."""
    run, planned = prepare(run_config(overrides))
    ledger, delta = planned.ledger, run.privacy.delta
    found = {}
    for count in counts:
        single, search = selection_costs([ledger], Repetitions(mean=max(count, 2)), delta)
        found[count] = single.epsilon if count == 1 else search.epsilon
    return found


def _grid(data: pd.DataFrame, metric: str, costs: dict[str, dict[int, float]]) -> Grid:
    """A line for each row, with a column for each number of trials."""
    part = data[data["metric"] == metric]
    counts = sorted(set(part["trials"]))
    lines = []
    for condition, of_condition in part.groupby("condition", sort=False):
        spent = [rounded_up(costs[str(condition)][count]) for count in counts]
        lines.append((str(condition), "*epsilon, private*", *spent))
        for arm, points in of_condition.groupby("arm", sort=False):
            cells = {point.trials: _cell(point) for point in points.itertuples()}
            lines.append((str(condition), str(arm), *(cells.get(c, "") for c in counts)))
    head = ("condition", "method", *map(str, counts))
    return Grid(f"{_label(metric)}, in percent", head, tuple(lines))


def _label(metric: str) -> str:
    label = metric_of(metric).label
    return f"{label} of the most accurate trial" if _is_cost(metric) else label


def _cell(point) -> str:
    low, high = 100 * point.low, 100 * point.high
    return f"{100 * point.expected_best:.1f} [{low:.1f}, {high:.1f}]"


def _draw(title: str, data: pd.DataFrame, setup: TuningBudgetSettings) -> Figure:
    conditions = list(dict.fromkeys(data["condition"]))
    figure = paper_figure(len(conditions), 0.8 + 1.6 * len(setup.metrics))
    grid = figure.subplots(len(setup.metrics), len(conditions), squeeze=False, sharex=True)
    for metric, axes in zip(setup.metrics, grid, strict=True):
        for condition, axis in zip(conditions, axes, strict=True):
            part = data[(data["metric"] == metric) & (data["condition"] == condition)]
            _lines(axis, part, setup.highlight)
            axis.set_title(condition)
        axes[0].set_ylabel(textwrap.fill(f"{_label(metric)} (%)", 32))
    for axis in grid[-1]:
        axis.set_xlabel("trials")
    legend_below(figure, grid.flat)
    return titled(figure, title)


def _lines(axis, part: pd.DataFrame, highlight: list[str]) -> None:
    """A line for each method: grey, or with its interval if it is highlighted."""
    for arm, points in part.groupby("arm", sort=False):
        chosen = arm in highlight
        color = f"C{highlight.index(str(arm))}" if chosen else "0.8"
        best, low, high = (100 * points[name] for name in ("expected_best", "low", "high"))
        order = 2 if chosen else 1
        label = str(arm) if chosen else None
        axis.plot(points["trials"], best, color=color, label=label, zorder=order, marker=".")
        if chosen:
            axis.fill_between(points["trials"], low, high, color=color, alpha=0.15, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(alpha=0.3)
