"""A figure of times, measured by `dpbench bench`."""

from dpbench.comparison.reproduce.target import Target
from dpbench.runs.config.buildable import settings_of
from dpbench.runs.records.folder import TABLES

from .command import bench


def step_times(target: Target) -> dict[str, bytes]:
    """The page of a figure of times, always measured again: the settings of `table.compute` are
    those of `dpbench bench`. Table, numbers and picture are in a folder of the figure's name."""
    out = target.config.results / TABLES / target.stem
    own = settings_of(target.table.compute or {})
    settings = {**own, "device": target.config["device"], "out": out}
    bench([f"{key}={value}" for key, value in settings.items()])
    return target.page(f"Table, numbers and picture are in {out}.").files
