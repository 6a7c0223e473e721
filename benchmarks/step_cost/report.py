"""Writes measurements as numbers (CSV), as a table (Markdown) and as a picture (PNG)."""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.system.errors import UserError

from .cases import Case
from .contenders import BASELINE
from .timing import Timing

COLUMNS = (
    *("case", "contender", "parameters", "batch_size", "dtype"),
    *("ms", "ms_min", "ms_max", "ratio", "ratio_min", "ratio_max"),
    *("memory_mib", "repeats", "steps_per_repeat"),
    *("check", "error", "reason", "environment", "load"),
)

VARIES = 3.0
"""A case is disturbed if its plain step takes more than so many times its least in some turn."""

IMPLAUSIBLE = 0.9
"""A case is disturbed if a step of ours takes less than this share of the plain one, of which it is
a superset."""

BUSY = 1.5
"""A case is disturbed if more processes than this ran by core in the minute before it."""


def rows(case: Case, timed: list[Timing], environment: str, load: float) -> pd.DataFrame:
    """One row per contender: median, minimum and maximum over the repeats.

    A ratio is a time over the baseline's time in the same repeat. load: by core, before it.
    """
    (baseline,) = (t for t in timed if t.contender == BASELINE)
    data = [
        _row(case, t, baseline) | {"environment": environment, "load": round(load, 1)}
        for t in timed
    ]
    return pd.DataFrame(data, columns=list(COLUMNS))


def _row(case: Case, timed: Timing, baseline: Timing) -> dict:
    return {
        "case": case.name,
        "contender": timed.contender,
        "parameters": timed.parameters,
        "batch_size": case.batch_size,
        "dtype": "float32",
        **spread("ms", [1000 * seconds for seconds in timed.seconds]),
        **spread("ratio", ratios(timed.seconds, baseline.seconds)),
        "memory_mib": None if timed.memory is None else timed.memory / 2**20,
        "repeats": len(timed.seconds),
        "steps_per_repeat": timed.steps_per_repeat,
        "check": timed.check.message if timed.check else "",
        "error": timed.check.error if timed.check else None,
        "reason": timed.reason,
    }


def ratios(seconds: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """The times over the baseline's times in the same turn."""
    return [ours / plain for ours, plain in zip(seconds, baseline, strict=False)]


def spread(name: str, values: list[float]) -> dict[str, float]:
    """Columns with median, minimum and maximum; none if there are no values."""
    if not values:
        return {}
    low, middle, high = min(values), statistics.median(values), max(values)
    return {name: middle, f"{name}_min": low, f"{name}_max": high}


def add(path: Path, data: pd.DataFrame) -> None:
    """Add rows to the CSV file, in the places of all older rows of the same cases."""
    if path.exists():
        older = read(path)
        others = older[~older["case"].isin(data["case"])]
        order = [*dict.fromkeys([*older["case"], *data["case"]])]
        data = pd.concat([others, data]) if len(others) else data
        data = data.sort_values("case", key=lambda cases: cases.map(order.index), kind="stable")
    path.parent.mkdir(parents=True, exist_ok=True)
    data.to_csv(path, index=False, float_format="%.5g")


def check_replaced(path: Path, measured: Mapping[str, Collection[str]]) -> None:
    """UserError if `add` would replace rows of contenders that are not measured again.

    measured: the contenders by case.
    """
    older = read(path) if path.exists() else pd.DataFrame(columns=["case", "contender"])
    for case, contender in zip(older["case"], older["contender"], strict=True):
        if contender not in measured.get(case, [contender]):
            raise UserError(
                f"{path} has rows of other contenders of {case}, such as {contender}, which these "
                "would replace: set out= to another folder."
            )


def read(path: Path) -> pd.DataFrame:
    """The rows of a CSV file."""
    texts = {"check": "", "reason": ""}
    return pd.read_csv(path, dtype=dict.fromkeys(texts, "object")).fillna(texts)


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


def render(
    path: Path,
    markdown: Callable[[pd.DataFrame], str],
    picture: Callable[[pd.DataFrame], bytes] | None,
) -> str:
    """Write table and any picture beside the CSV file, and return the table."""
    data = read(path)
    text = markdown(data)
    path.with_suffix(".md").write_text(text)
    if picture:
        path.with_suffix(".png").write_bytes(picture(data))
    return text


def markdown(data: pd.DataFrame) -> str:
    """Ratios of all cases in one table, then each case with its times, memory and reasons."""
    data = data.assign(shown=_ratios(data))
    blocks: list[PageBlock] = [
        "One step is forward, per-example gradients, clipping to norm 1, sum, Gaussian noise of "
        "multiplier 1, and the SGD update; `plain` is forward, backward and update. Milliseconds "
        "are medians over the repeats (least to largest); a ratio is the median over the repeats "
        "of the time over that of `plain` in the same turn. Memory is the peak: on a GPU all that "
        "was allocated, on a CPU what the process grew by over model and data (coarse). The check "
        "compares the clipped sum, and the size of the noise, with the float64 loop engine. A case "
        f"is disturbed if its plain step took over {VARIES:g} times its least, "
        f"a step of ours took less than {IMPLAUSIBLE:g} of it, or over {BUSY:g} processes a core "
        "ran before it.",
        [*environment_lines(data)],
        _overview(data),
    ]
    for name, rows in data.groupby("case", sort=False):
        blocks += _case(name, rows)
    return Page("Time of one training step", blocks).markdown


def environment_lines(data: pd.DataFrame) -> Iterable[str]:
    """Each environment once, with its cases if there are several environments."""
    several = data["environment"].nunique() > 1
    for environment, rows in data.groupby("environment", sort=False):
        names = ", ".join(rows["case"].unique())
        yield f"{names}: {environment}" if several else str(environment)


def _ratios(data: pd.DataFrame) -> list[str]:
    """The ratio of each row as text."""
    marked = disturbed(data)
    return [
        "—" if pd.isna(row.ratio) else "disturbed" if row.case in marked else f"{row.ratio:.2f}"
        for row in data.itertuples()
    ]


def _overview(data: pd.DataFrame) -> Grid:
    ratios = data.pivot(index="contender", columns="case", values="shown").fillna("—")
    ratios = ratios.reindex(data["contender"].unique())[data["case"].unique()]
    head = ("", *ratios.columns)
    return Grid("Ratio to the plain step", head, tuple(ratios.itertuples()))


def _case(name: str, data: pd.DataFrame) -> list[PageBlock]:
    first = data.iloc[0]
    title = f"## {name}\n\nBatch size {first.batch_size}, {first['dtype']}"
    if not pd.isna(first.parameters):
        title += f", {first.parameters:,.0f} parameters"
    if not pd.isna(first.get("load")):
        title += f", load {first['load']:g} a core"
    header = ("contender", "ms per step", "ratio", "memory, MiB", "check")
    cells = tuple((row.contender, *_cells(row)) for row in data.itertuples())
    return [f"{title}.", Grid("", header, cells)]


def _cells(row) -> list[str]:
    if row.reason:
        return ["—", "—", "—", row.reason]
    time = f"{row.ms:.3g} ({row.ms_min:.3g} to {row.ms_max:.3g})"
    memory = "—" if pd.isna(row.memory_mib) else f"{row.memory_mib:.0f}"
    return [time, row.shown, memory, row.check]
