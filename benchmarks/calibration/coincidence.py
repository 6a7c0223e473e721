"""Fact 4.1 of Bu et al. (calibration): noise does not change the gradient flow.

Loss curves of runs that differ only in noise and step size, over the common time lr * steps: as the
step size decreases, the curves of all noise multipliers coincide.
"""

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from dpbench.comparison.reproduce.data import claims_file
from dpbench.comparison.reproduce.figure import NOT_PRIVATE, claims_blocks
from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.claims.comparisons import ClaimEvidence, JudgedClaim
from dpbench.comparison.tables.claims.quantities import quantity
from dpbench.comparison.tables.conditions import setting
from dpbench.comparison.tables.edition import RowClaim, TableColumn
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.runs import Row
from dpbench.learning.metrics.metric import OTHER_MARGIN
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.figures.formats import images, legend_below, paper_figure, symbol, titled
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

LR, SIGMA = "optimizer.lr", "privacy.noise_multiplier"


def curves(records: Iterable[Record]) -> pd.DataFrame:
    """The mean training loss of every epoch: columns lr, sigma, seed, time, loss.

    time: lr * steps before the epoch, with the steps of the ledger divided evenly over epochs.
    """
    rows = []
    for record in records:
        lr, sigma = (float(setting(record.config, key)) for key in (LR, SIGMA))
        losses = record.history["train/loss"]
        pace = lr * record.privacy["steps"] / len(losses)
        seed = record.config["seed"]
        rows += [(lr, sigma, seed, i * pace, loss) for i, loss in enumerate(losses)]
    names = ["lr", "sigma", "seed", "time", "loss"]
    return pd.DataFrame(rows, columns=names).sort_values(
        ["lr", "sigma", "seed", "time"], ignore_index=True
    )


def distances(data: pd.DataFrame) -> pd.DataFrame:
    """The distance between the curves with the same lr and seed: columns lr, seed, distance.

    distance: the largest difference of two curves at any time, relative to the first loss; NaN if a
    run diverged. Raises UserError for fewer than two noise multipliers.
    """
    if data["sigma"].nunique() < 2:
        raise UserError(f"the table has only one {SIGMA}: keep at least two to compare curves.")
    by_time = data.groupby(["lr", "seed", "time"])["loss"]
    largest = by_time.agg(_span).groupby(["lr", "seed"]).agg(lambda span: span.max(skipna=False))
    first = data[data["time"] == 0].groupby(["lr", "seed"])["loss"].mean()
    return (largest / first).rename("distance").reset_index()


def _span(losses: pd.Series) -> float:
    return losses.max(skipna=False) - losses.min(skipna=False)


def coincidence(target: Target, records: list[Record]) -> dict[str, bytes]:
    """The files of the figure by suffix: page with its numbers, curves as CSV, and image."""
    data = curves(records)
    gaps = distances(data)
    judged = judge_distances(target.claims, gaps)
    before, after = claims_blocks(judged)
    text = target.page(
        f"{target.table.paper}. {target.own_scale}, seeds {target.table.seeds}.",
        *before,
        target.image,
        _grid(gaps),
        NOT_PRIVATE,
        *after,
        *target.table.notes,
    )
    csv = _at_common_times(data).to_csv(index=False, lineterminator="\n", float_format="%.9g")
    pictures = images(draw(target.title, data, gaps))
    return {**text.files, "csv": csv.encode(), **pictures, **claims_file(judged)}


def judge_distances(claims: Iterable[RowClaim], gaps: pd.DataFrame) -> list[JudgedClaim]:
    """The claims about `distance`, whose rows are learning rates: `lr 0.05`.

    gaps: from `distances`. Raises UserError for a claim about anything else.
    """
    rows = [
        Row("", f"lr {lr:g}", CORRECTED, part.to_dict("records")) for lr, part in gaps.groupby("lr")
    ]
    columns = [TableColumn("distance", "distance", 1, None, "lower", "distance", OTHER_MARGIN)]
    judge = ClaimEvidence([""], rows, {}).judge
    return [judge(c, [quantity(name, columns) for name in c.quantities]) for c in claims]


def _at_common_times(data: pd.DataFrame) -> pd.DataFrame:
    """The curves at the times of the largest step size only; the smallest has thousands of them."""
    times = data["time"].round(9)
    return data[times.isin(times[data["lr"] == data["lr"].max()])]


def _grid(gaps: pd.DataFrame) -> Grid:
    """Mean and range over the seeds, the largest step size first."""
    lines = [
        (f"{lr:g}", f"{d.mean():.4f}", f"{d.min():.4f} to {d.max():.4f}", str(len(d)))
        for lr, d in sorted(gaps.groupby("lr")["distance"], reverse=True)
    ]
    head = ("lr", "largest distance of the curves / first loss", "range", "seeds")
    return Grid("Distances", head, tuple(lines))


def draw(title: str, data: pd.DataFrame, gaps: pd.DataFrame) -> Figure:
    """For each lr the curves of every sigma, then their distances against lr."""
    steps = sorted(data["lr"].unique(), reverse=True)
    figure = paper_figure(len(steps) + 1, 2.4)
    *axes, last = figure.subplots(1, len(steps) + 1)
    for axis, lr in zip(axes, steps, strict=True):
        _curves_of(axis, data[data["lr"] == lr])
        axis.set_title(f"{symbol('lr')} = {lr:g}")
        axis.sharey(axes[0])
    axes[0].set_ylabel("train loss")
    legend_below(figure, axes, "bands: range over seeds")
    _against_lr(last, gaps)
    return titled(figure, title)


def _curves_of(axis, data: pd.DataFrame) -> None:
    """One line per sigma: the mean over the seeds, and a band that spans them."""
    styles = ("-", "--", "-.", ":") * 9
    for (sigma, rows), style in zip(data.groupby("sigma"), styles, strict=False):
        by_time = rows.groupby("time")["loss"]
        mean = by_time.mean()
        axis.plot(mean.index, mean, style, label=f"{symbol('sigma')} = {sigma:g}", linewidth=1.2)
        axis.fill_between(mean.index, by_time.min(), by_time.max(), alpha=0.2)
    axis.set_yscale("log")
    axis.set_xlabel(f"time: {symbol('lr')} × steps")
    axis.grid(alpha=0.3)


def _against_lr(axis, gaps: pd.DataFrame) -> None:
    by_lr = gaps.groupby("lr")["distance"]
    mean = by_lr.mean()
    axis.plot(mean.index, mean, "o-", linewidth=1.4)
    axis.fill_between(mean.index, by_lr.min(), by_lr.max(), alpha=0.2)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(symbol("lr"))
    axis.set_title("largest distance\nover first loss")
    axis.grid(alpha=0.3)
