"""Measurements that something else on the machine disturbed, whose ratios mean nothing."""

import math

import pandas as pd

from .contenders import BASELINE

VARIES = 3.0
"""A case is disturbed if its plain step takes more than so many times its least in some turn."""

IMPLAUSIBLE = 0.9
"""A case is disturbed if a step of ours takes less than this share of the plain one, of which it is
a superset."""

BUSY = 1.5
"""A case is disturbed if more processes than this ran by core in the minute before it."""


def disturbed(data: pd.DataFrame) -> set[str]:
    """The cases whose plain step was disturbed, such as by another process."""
    plain = data[data["contender"] == BASELINE]
    varies = plain.loc[plain["ms_max"] > VARIES * plain["ms_min"], "case"]
    ours = data[data["contender"].str.startswith("ours_")]
    busy = data[data["load"] > BUSY] if "load" in data else data[:0]
    return {*varies, *ours.loc[ours["ratio"] < IMPLAUSIBLE, "case"], *busy["case"]}


def undisturbed(data: pd.DataFrame) -> pd.DataFrame:
    """The rows without the ratios of disturbed cases."""
    ratios = [name for name in data if name.startswith("ratio")]
    kept = data.copy()
    kept.loc[kept["case"].isin(disturbed(data)), ratios] = math.nan
    return kept
