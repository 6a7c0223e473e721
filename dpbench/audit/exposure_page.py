"""The page, numbers and picture of `dpbench.audit.exposure`."""

import math
from collections.abc import Iterator, Sequence

from dpbench.audit.exposure import EVERYONE, Row, exposure_rows
from dpbench.figures.png import png
from dpbench.reproduce.target import Target
from dpbench.tables.grid import NO_VALUE, Grid
from dpbench.tables.markdown import grid_lines
from dpbench.tables.tidy import csv_text

HEAD = (
    *("method", "group", "accuracy", "accuracy lost", "claimed"),
    *("white box (own family)", "white box (GDP)", "white box (one run)"),
    *("black box (GDP)", "black box (one run)", "AUC", "TPR at 1% FPR"),
)

RULES = (
    "Epsilons are lower bounds at 95% confidence, each by one attack, at the delta of the claim. "
    "Own family: by the trade-off curves of the run's own ledger with more or less noise; GDP: by "
    "those of Gaussian differential privacy; one run: by Steinke et al. 2023, who assume nothing "
    "of how examples depend on each other. A bound of 0 says that this attack shows nothing.",
    "White box: the attacker inserts canaries into one run, each with a gradient on a coordinate "
    "that real examples hardly move, and sees every noisy sum. Black box: the attacker sees the "
    "losses of the final model on mislabelled training examples, and those of shadow runs with and "
    "without each (LiRA). For bounds, later runs are attacked by the runs before them; for AUC and "
    "TPR, each run by all others.",
    "Accuracy: on the test set, the mean of the shadow runs, in percent. Lost: points less than "
    "without privacy. AUC ± standard error: 0.5 is a coin.",
)

UNCERTAIN = 2.0
"""Standard errors below which a difference shows nothing."""


def exposure_figure(target: Target) -> dict[str, bytes]:
    """The files of the figure by suffix."""
    rows = exposure_rows(target)
    lines = list(_lines(rows, target.table["baseline"]))
    return {
        "md": _page(target, rows, Grid("", HEAD, tuple(lines))).encode(),
        "csv": csv_text(HEAD, lines).encode(),
        "png": png(_picture(rows), target.title),
    }


def _lost(row: Row, rows: Sequence[Row], baseline: str) -> float:
    """Percentage points of accuracy; NaN where the baseline was left out."""
    best = [r.accuracy for r in rows if (r.method, r.group) == (baseline, row.group)]
    return 100 * (best[0] - row.accuracy) if best else math.nan


def _lines(rows: Sequence[Row], baseline: str) -> Iterator[tuple[str, ...]]:
    for row in rows:
        white, found = row.white, row.exposure
        known = (white.own, white.gdp, white.one_run) if white else ()
        yield (
            row.method,
            row.group,
            f"{100 * row.accuracy:.1f}",
            f"{_lost(row, rows, baseline):.1f}",
            f"{row.claimed:.2f}",
            *([f"{epsilon:.2f}" for epsilon in known] or [NO_VALUE] * 3),
            *(f"{epsilon:.2f}" for epsilon in row.black),
            f"{found.auc:.3f} ± {found.error:.3f}",
            f"{found.found:.2%}",
        )


def _page(target: Target, rows: Sequence[Row], grid: Grid) -> str:
    parts = [
        f"# {target.title}",
        f"{target.table['paper']} Runs of each method: {len(target.table['seeds'])}. "
        f"Scale: {target.scale_label}.",
        "\n".join(f"- {sentence}" for sentence in _findings(rows, target.table["baseline"])),
        f"![{target.title}]({target.stem}.png)",
        grid_lines(grid),
        "## Rules and notes",
        *RULES,
        *target.table["notes"],
    ]
    return "\n\n".join(parts) + "\n"


def _findings(rows: Sequence[Row], baseline: str) -> Iterator[str]:
    """Of each method: whether the group that loses most accuracy is the most exposed."""
    for method in dict.fromkeys(row.method for row in rows):
        groups = [row for row in rows if row.method == method and row.group != EVERYONE]
        if method == baseline or not groups:
            continue
        lost = [_lost(row, rows, baseline) for row in groups]
        if not math.isfinite(sum(lost)):
            continue
        worst, least = groups[lost.index(max(lost))], groups[lost.index(min(lost))]
        yield (
            f"{method}: {worst.group} loses {max(lost):.1f} points of accuracy and {least.group} "
            f"{min(lost):.1f}; {worst.group} is {_compared(worst, least)} (AUC "
            f"{worst.exposure.auc:.3f} and {least.exposure.auc:.3f})."
        )


def _compared(worst: Row, least: Row) -> str:
    """The exposure of the first in words, if it differs from that of the second."""
    difference = worst.exposure.auc - least.exposure.auc
    if abs(difference) < UNCERTAIN * math.hypot(worst.exposure.error, least.exposure.error):
        return "not shown to be more exposed, or less"
    return "more exposed" if difference > 0 else "less exposed"


def _picture(rows: Sequence[Row]):
    """Epsilons by method, and AUC by method and group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    epsilons, areas = figure.subplots(1, 2)
    _draw_epsilons(epsilons, [row for row in rows if row.group == EVERYONE])
    _draw_areas(areas, rows)
    return figure


def _draw_epsilons(axes, rows: Sequence[Row]) -> None:
    finite = [row.claimed for row in rows if math.isfinite(row.claimed)]
    top = 1.2 * max([1.0, *finite])
    for place, row in enumerate(rows):
        white = row.white.own if row.white else 0.0
        axes.bar(place - 0.2, white, 0.36, color="tab:blue", label="white box, at least")
        axes.bar(place + 0.2, row.black[0], 0.36, color="tab:orange", label="black box, at least")
        if math.isfinite(row.claimed):
            axes.hlines(row.claimed, place - 0.4, place + 0.4, color="black", label="claimed")
        else:
            axes.text(place, 0.95 * top, "claimed: inf", ha="center", va="top", fontsize=8)
    axes.set_ylim(0, top)
    axes.set_ylabel("epsilon")
    _label_methods(axes, [row.method for row in rows])


def _draw_areas(axes, rows: Sequence[Row]) -> None:
    methods = list(dict.fromkeys(row.method for row in rows))
    groups = list(dict.fromkeys(row.group for row in rows if row.group != EVERYONE))
    for number, group in enumerate(groups):
        found = [row.exposure for row in rows if row.group == group]
        places = [place + 0.2 * (number - (len(groups) - 1) / 2) for place in range(len(found))]
        errors = [2 * one.error for one in found]
        axes.errorbar(places, [one.auc for one in found], errors, fmt="o", capsize=3, label=group)
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("AUC of the black box (± 2 standard errors)")
    _label_methods(axes, methods)


def _label_methods(axes, methods: Sequence[str]) -> None:
    """Names of methods on the x axis, and each label of the legend once."""
    axes.set_xticks(range(len(methods)), methods, rotation=20, ha="right", fontsize=8)
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(once.values(), once.keys(), fontsize=8)
