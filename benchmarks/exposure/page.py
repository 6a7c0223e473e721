"""The page, numbers and picture of `dpbench.benchmarks.exposure.rows`."""

import math
from collections.abc import Iterator, Sequence

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.page import Page
from dpbench.runs.figures.formats import images, paper_figure, symbol, titled
from dpbench.runs.records.collect import RECORDS
from dpbench.runs.records.epsilon import legend

from .membership import Exposure
from .rows import (
    ALL_GROUPS,
    ExposureRow,
    ExposureSettings,
    exposure_rows,
    shadow_runs,
)

HEAD = (
    *("method", "group", "accuracy", "accuracy lost", "claimed"),
    *("white box (own family)", "white box (GDP)", "white box (one run)"),
    *("black box (GDP)", "black box (one run)"),
    *("AUC (white box)", "AUC (black box)", "TPR at 1% FPR (black box)"),
)

RULES = (
    "Epsilons are lower bounds at 95% confidence, each by one attack, at the delta of the claim. "
    "Own family: by the trade-off curves of the run's ledger with more or less noise; GDP: by "
    "those of Gaussian differential privacy; one run: by Steinke et al. 2023, who do not assume "
    "that examples are independent. A bound of 0 means that this attack shows nothing; with so few "
    "canaries a group's bounds differ by chance. One in twenty may be above the truth.",
    "White box: the attacker inserts canaries into one run, each with a gradient on a coordinate "
    "that real examples hardly move, and sees every noisy sum. Black box: the attacker sees the "
    "losses of the final model on mislabelled training examples, and those of shadow runs with and "
    "without each of them (LiRA). For bounds, later runs are attacked by the runs before them; for "
    "AUC and TPR, each run by all others.",
    "Accuracy: on the test set, the mean of the shadow runs, in percent. Lost: percentage points "
    "below training without privacy. AUC ± standard error: 0.5 is chance.",
)

UNCERTAIN = 2.0
"""Differences of fewer standard errors are not significant."""


def exposure_figure(target: Target) -> dict[str, bytes]:
    """The files of the figure by suffix."""
    canaries = target.computed_by(ExposureSettings).canaries
    records = shadow_runs(target)
    rows = exposure_rows(target, records, canaries)
    grid = Grid("", HEAD, tuple(_lines(rows, target.table.baseline)))
    shadows = [record for runs in records.values() for record in runs]
    return {
        **_page(target, rows, grid, legend(record.statement for record in shadows)).files,
        "csv": grid.csv.encode(),
        **images(titled(_picture(rows), target.title)),
        RECORDS: "".join(f"{record.json()}\n" for record in shadows).encode(),
    }


def _lost(row: ExposureRow, rows: Sequence[ExposureRow], baseline: str) -> float:
    """Percentage points of accuracy below the baseline; NaN if the baseline was left out."""
    without = [r.accuracy for r in rows if (r.method, r.group) == (baseline, row.group)]
    return 100 * (without[0] - row.accuracy) if without else math.nan


def _lines(rows: Sequence[ExposureRow], baseline: str) -> Iterator[tuple[str, ...]]:
    for row in rows:
        white, exposure = row.white, row.mislabelled
        bounds = (white.family, white.gdp, white.one_run) if white else ()
        yield (
            row.method,
            row.group,
            f"{100 * row.accuracy:.1f}",
            f"{_lost(row, rows, baseline):.1f}",
            f"{row.claimed:.2f}",
            *([f"{epsilon:.2f}" for epsilon in bounds] or [NO_VALUE] * 3),
            *(f"{epsilon:.2f}" for epsilon in row.black),
            _area(row.canaries) if row.canaries else NO_VALUE,
            _area(exposure),
            f"{exposure.tpr:.2%}",
        )


def _area(exposure: Exposure) -> str:
    return f"{exposure.auc:.3f} ± {exposure.error:.3f}"


def _page(target: Target, rows: Sequence[ExposureRow], grid: Grid, terms: str) -> Page:
    return target.page(
        f"{target.table.paper} Runs of each method: {len(target.table.seeds)}. "
        f"Scale: {target.scale_label}.",
        *target.part,
        [*_findings(rows, target.table.baseline)],
        target.image,
        grid,
        "## Rules and notes",
        *RULES,
        terms,
        *target.table.notes,
    )


def _findings(rows: Sequence[ExposureRow], baseline: str) -> Iterator[str]:
    """For each method, whether the group that loses most accuracy is the most exposed."""
    for method in dict.fromkeys(row.method for row in rows):
        groups = [row for row in rows if row.method == method and row.group != ALL_GROUPS]
        if method == baseline or not groups:
            continue
        lost = [_lost(row, rows, baseline) for row in groups]
        if not math.isfinite(sum(lost)):
            continue
        worst, least = groups[lost.index(max(lost))], groups[lost.index(min(lost))]
        yield f"{method}: {_losses(worst, least, lost)}; {_exposures(worst, least)}."


def _losses(worst: ExposureRow, least: ExposureRow, lost: Sequence[float]) -> str:
    if max(lost) <= 0:
        return "no group loses accuracy"
    return (
        f"{worst.group} loses {max(lost):.1f} points of accuracy and {least.group} {min(lost):.1f}"
    )


def _exposures(worst: ExposureRow, least: ExposureRow) -> str:
    """For each attack, whether the group that loses most accuracy is more exposed."""
    pairs = {
        "white": (worst.canaries, least.canaries),
        "black": (worst.mislabelled, least.mislabelled),
    }
    return "; ".join(
        f"by the {name} box {_compared(worst.group, first, second)} "
        f"(AUC {first.auc:.3f} for {worst.group} and {second.auc:.3f} for {least.group})"
        for name, (first, second) in pairs.items()
        if first and second
    )


def _compared(group: str, first: Exposure, second: Exposure) -> str:
    """Whether a group is more exposed than another, if the difference is significant."""
    difference = first.auc - second.auc
    if abs(difference) < UNCERTAIN * math.hypot(first.error, second.error):
        return "neither is shown to be the more exposed"
    return f"{group} is {'more' if difference > 0 else 'less'} exposed"


def _picture(rows: Sequence[ExposureRow]):
    """Epsilons by method, and AUC of both attacks by method and group."""
    figure = paper_figure(3, 2.8)
    epsilons, white, black = figure.subplots(1, 3)
    _draw_epsilons(epsilons, [row for row in rows if row.group == ALL_GROUPS])
    by_group = [row for row in rows if row.group != ALL_GROUPS]
    _draw_areas(white, "white box", by_group, [row.canaries for row in by_group])
    _draw_areas(black, "black box", by_group, [row.mislabelled for row in by_group])
    return figure


def _draw_epsilons(axes, rows: Sequence[ExposureRow]) -> None:
    finite = [row.claimed for row in rows if math.isfinite(row.claimed)]
    top = 1.6 * max([1.0, *finite])
    for place, row in enumerate(rows):
        white = row.white.family if row.white else math.nan
        bars = ((-0.2, white, "white", "tab:blue"), (0.2, row.black[0], "black", "tab:orange"))
        for shift, value, box, color in bars:
            bar = axes.bar(place + shift, value, 0.36, color=color, label=f"{box} box, at least")
            axes.bar_label(bar, [f"{value:.2f}" if math.isfinite(value) else ""], fontsize=6)
        if math.isfinite(row.claimed):
            axes.hlines(row.claimed, place - 0.4, place + 0.4, color="black", label="claimed")
        else:
            axes.text(place, 0.6 * top, "claimed:\ninfinite", ha="center", fontsize=6)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, top)
    axes.set_ylabel(symbol("epsilon"))
    _label_methods(axes, [row.method for row in rows])


def _draw_areas(
    axes, attack: str, rows: Sequence[ExposureRow], exposures: Sequence[Exposure | None]
) -> None:
    methods = list(dict.fromkeys(row.method for row in rows))
    groups = list(dict.fromkeys(row.group for row in rows))
    for row, exposure in zip(rows, exposures, strict=True):
        if exposure is None:
            continue
        number = groups.index(row.group)
        place = methods.index(row.method) + 0.2 * (number - (len(groups) - 1) / 2)
        color = f"C{number + 2}"
        style = {"fmt": "o", "capsize": 3, "color": color, "label": row.group}
        axes.errorbar(place, exposure.auc, 2 * exposure.error, **style)
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel(f"AUC of the {attack} (± 2 standard errors)")
    _label_methods(axes, methods)


def _label_methods(axes, methods: Sequence[str]) -> None:
    """Put the methods on the x axis, and each label in the legend once."""
    axes.set_xticks(range(len(methods)), methods, rotation=45, ha="right")
    handles, labels = axes.get_legend_handles_labels()
    distinct = dict(zip(labels, handles, strict=True))
    axes.legend(distinct.values(), distinct.keys())
