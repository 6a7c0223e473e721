"""The trials of the searches that chose the settings of a table, from their files."""

import io
from pathlib import Path

import pandas as pd

from dpbench.config.table_file import Scatter
from dpbench.records.folder import SEARCH
from dpbench.records.reading import Unreadable, text_of
from dpbench.reproduce.target import Target
from dpbench.system.errors import UserError

COLUMNS = ["condition", "arm", "x", "y"]


def search_trials(target: Target, figure: Scatter) -> pd.DataFrame:
    """Every trial without failures of `search/NAME-DATASET-ARM.csv`: columns condition, arm, x, y.

    NAME: the figure's `searches`; x, y: its metrics, on validation examples. An arm
    without a search, or whose search has no such metric, has no trials.
    """
    folder = target.config.results / SEARCH
    parts = [pd.DataFrame(columns=COLUMNS)]
    for condition in target.conditions:
        dataset = dict(condition.values).get("dataset", target.config["choices"]["dataset"])
        for arm in target.table.methods:
            path = folder / f"{figure.searches}-{dataset}-{arm}.csv"
            trials = trials_in(path, figure.x, figure.y) if path.exists() else None
            if trials is not None:
                parts.append(trials.assign(condition=condition.label, arm=arm)[COLUMNS])
    return pd.concat(parts[1:] or parts, ignore_index=True)


def trials_in(path: Path, x: str, y: str) -> pd.DataFrame | None:
    """The trials in the file of one search: columns x and y; None without these metrics.

    UserError for a file that is not of a search.
    """
    text = text_of(path)
    if isinstance(text, Unreadable):
        raise UserError(f"{path} {text.reason}: run the search again.")
    try:
        data = pd.read_csv(io.StringIO(text))
    except ValueError as error:
        raise UserError(f"{path} is not a table of trials: run the search again.") from error
    names = [f"validation/{metric.partition('/')[2]}" for metric in (x, y)]
    if not {*names, "failed"} <= {*data.columns}:
        return None
    points = data.loc[data["failed"].isna(), names].dropna().set_axis(["x", "y"], axis=1)
    if not all(map(pd.api.types.is_numeric_dtype, points.dtypes)):
        raise UserError(f"{path} has metrics that are not numbers: run the search again.")
    return points.sort_values(["x", "y"])
