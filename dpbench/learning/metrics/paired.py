"""The cost of privacy per group: a private run against the non-private run of the same seed."""

from typing import TYPE_CHECKING

from dpbench.system.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

SAME = ["dataset", "model", "seed"]
TRAINING = "train_set/"
PER_GROUP = ("privacy_cost/", "excessive_risk/")
GAPS = ("privacy_cost_gap", "excessive_risk_gap")


def is_paired(metric: str) -> bool:
    """Whether a metric compares a run with its non-private baseline."""
    metric = metric.removeprefix(TRAINING)
    return metric.startswith(PER_GROUP) or metric in GAPS


def pair_with_baseline(
    runs: "pd.DataFrame", groups: tuple[str, str], baseline: str
) -> "pd.DataFrame":
    """The runs with their costs relative to the `baseline` run of the same data, model and seed.

    runs: one row per run, with columns dataset, model, method, seed and, for both groups k,
    `test/accuracy/<k>` (fraction) and `test/loss/<k>` (nats). Columns added for every group k:
    `privacy_cost/<k>` = accuracy_k(baseline) - accuracy_k(run) (Esipova et al. 2023, eq. 1) and
    `excessive_risk/<k>` = loss_k(run) - loss_k(baseline) (eq. 2); then `privacy_cost_gap` and
    `excessive_risk_gap`, the absolute differences between the two named groups, per run. Where the
    runs have `train_set/loss/<k>`, also the excessive risk and its gap on the training examples,
    as `train_set/excessive_risk/<k>` and `train_set/excessive_risk_gap`.

    A run without its baseline gets NaN. Raises UserError if a baseline run is duplicated, or a
    group is not in the runs.
    """
    costs: dict[str, pd.Series] = {}
    base, known = _baseline_of_each(runs, baseline), _groups(runs, groups)
    kinds = {
        "privacy_cost": ("test/accuracy", -1),
        "excessive_risk": ("test/loss", 1),
        f"{TRAINING}excessive_risk": (f"{TRAINING}loss", 1),
    }
    a, b = groups
    for kind, (measure, sign) in kinds.items():
        if f"{measure}/{a}" not in runs:
            continue
        for group in known:
            column = f"{measure}/{group}"
            costs[f"{kind}/{group}"] = sign * (runs[column] - base[column])
        costs[f"{kind}_gap"] = (costs[f"{kind}/{a}"] - costs[f"{kind}/{b}"]).abs()
    return runs.assign(**costs)


def _groups(runs: "pd.DataFrame", named: tuple[str, str]) -> list[str]:
    """All groups of the runs; UserError if one of the two named groups is not among them."""
    prefix = "test/accuracy/"
    known = [name.removeprefix(prefix) for name in runs.columns if name.startswith(prefix)]
    for group in named:
        if group not in known:
            raise UserError(f"The runs have no group {group!r}; they have {', '.join(known)}.")
    return known


def _baseline_of_each(runs: "pd.DataFrame", baseline: str) -> "pd.DataFrame":
    """For each run, in the same order, the row of its baseline run, or NaN."""
    measured = [name for name in runs.columns if name.startswith(("test/", TRAINING))]
    base = runs.loc[runs["method"] == baseline, SAME + measured]
    duplicates = base[base.duplicated(SAME)]
    if len(duplicates):
        raise UserError(
            f"There are two {baseline} runs of {dict(duplicates[SAME].iloc[0])}; keep one of them."
        )
    return runs[SAME].merge(base, on=SAME, how="left").set_axis(runs.index)
