"""A table, figure or search as data: rows with their runs and their tuning, cells, verdicts.

It is written as NAME.json beside the page, for the report and other programs, which do not read
prose back.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError, Struct, ValidationError, json

from dpbench.comparison.compare.side import Tuning
from dpbench.runs.records.reading import Unreadable, text_of

T = TypeVar("T", bound=Struct)


class MeanInterval(Struct, frozen=True):
    """A mean of n differences with its 95% interval; null where there is none."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


class RowData(Struct, frozen=True):
    """A row: its condition, its method or arm, the digests of its runs, and its tuning. seconds: of
    a run, on average; again: the row that it is after another search; chosen_by: by which metric.
    """

    condition: str
    method: str
    variant: str
    records: list[str]
    tuning: Tuning
    seconds: float | None = None
    again: str = ""
    chosen_by: str = ""


class ComparisonData(Struct, frozen=True):
    """A comparison of a claim, in the unit of the quantity; headroom: why none is shown."""

    condition: str
    row: str
    than: str
    quantity: str
    gap: MeanInterval | None
    margin: float | None
    verdict: str
    reason: str
    headroom: str


class ClaimData(Struct, frozen=True):
    """A claim, its source, and its verdict.

    effect: in margins, positive where it supports the claim; seeds: that would decide it in four of
    five repetitions, null if it is decided, or not by seeds.
    """

    name: str
    statement: str
    source: str
    method: str
    regime: str
    read: str
    verdict: str
    reason: str
    effect: MeanInterval | None
    seeds: int | None
    comparisons: list[ComparisonData]


@dataclass(frozen=True)
class Reproduced:
    """How many different numbers are printed and judged, how many of them are reproduced, and how
    many of these no constant would reproduce."""

    printed: int
    reproduced: int
    beyond_constants: int


class CellData(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A number of a row in the unit of its column, and the printed one with its spread, digit for
    digit; null and "" where there is none that is finite."""

    row: str
    column: str
    ours: float | None = None
    spread: float | None = None
    n: int
    published: str = ""
    published_spread: str = ""
    verdict: str


class TableData(Struct, frozen=True, omit_defaults=True):
    """A table, a figure or another page; printed: counts of printed numbers, at the paper's scale.

    notes: the sentences of its lists before the first grid; searches: how many a row has, each for
    the seeds with one remainder; not_run: why rows have no runs, by name.
    """

    title: str
    command: str = ""
    notes: list[str] = []
    name: str = ""
    scale: str = ""
    printed: Reproduced | None = None
    rows: list[RowData] = []
    claims: list[ClaimData] = []
    cells: list[CellData] = []
    searches: int = 1
    not_run: dict[str, str] = {}


def json_file(data: Struct) -> bytes:
    """The content of NAME.json."""
    return json.format(json.encode(data), indent=1) + b"\n"


def read_json(path: Path, kind: type[T]) -> T | Unreadable:
    """The value of this kind in such a file, or why it cannot be read."""
    text = text_of(path)
    if isinstance(text, Unreadable):
        return text
    try:
        return json.decode(text, type=kind)
    except (DecodeError, ValidationError, RecursionError) as error:
        return Unreadable(path.name, f"is not the data of a page ({error})")


class SearchData(Struct, frozen=True):
    """What was searched, and what was chosen.

    choices: the data set, the model and the method, without those that differ between trials;
    ranges: their texts by setting; chosen: the number of a trial, null for none; ends: a sentence
    on each of its settings that is at an end of what was tried.
    """

    choices: dict[str, str]
    ranges: dict[str, str]
    rule: str
    chosen: int | None
    ends: list[str]
