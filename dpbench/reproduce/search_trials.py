"""The trials of the searches that chose the settings of a table, from their files."""

from pathlib import Path

import pandas as pd

from dpbench.records.folder import SEARCH
from dpbench.reproduce.target import Target

COLUMNS = ["condition", "arm", "x", "y"]


def search_trials(target: Target) -> pd.DataFrame:
    """Every trial without failures of `search/NAME-DATASET-ARM.csv`: columns condition, arm, x, y.

    NAME: `table.figure.searches`; x, y: the figure's metrics, on validation examples. An arm
    without a search, or whose search has no such metric, has no trials.
    """
    figure, folder = target.table["figure"], Path(target.config["results_dir"]) / SEARCH
    parts = [pd.DataFrame(columns=COLUMNS)]
    for condition in target.conditions:
        dataset = dict(condition.values).get("dataset", target.config["choices"]["dataset"])
        for arm in target.table["methods"]:
            path = folder / f"{figure['searches']}-{dataset}-{arm}.csv"
            trials = _trials(path, figure["x"], figure["y"]) if path.exists() else None
            if trials is not None:
                parts.append(trials.assign(condition=condition.label, arm=arm)[COLUMNS])
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _trials(path: Path, x: str, y: str) -> pd.DataFrame | None:
    data = pd.read_csv(path)
    names = [_validated(metric) for metric in (x, y)]
    if not {*names} <= {*data.columns}:
        return None
    points = data.loc[data["failed"].isna(), names].dropna().set_axis(["x", "y"], axis=1)
    return points.sort_values(["x", "y"])


def _validated(metric: str) -> str:
    """`validation/accuracy` for `test/accuracy`."""
    return f"validation/{metric.partition('/')[2]}"
