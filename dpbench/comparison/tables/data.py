"""A table or figure as data: its rows with their runs and their tuning, and its verdicts.

It is written as NAME.json beside the page, for the report and other programs, which do not read
prose back.
"""

from msgspec import DecodeError, Struct, ValidationError, json

from dpbench.comparison.compare.side import Tuning
from dpbench.comparison.tables.constants import Reproduced


class Interval(Struct, frozen=True):
    """A mean of n differences with its 95% interval; null where there is none."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


class RowData(Struct, frozen=True):
    """A row: its condition, its method or arm, the digests of its runs, and its tuning.

    seconds: of a run, on average; again: the row that it is after another search, "" for none;
    chosen_by: the metric by which its search chose.
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
    gap: Interval | None
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
    effect: Interval | None
    seeds: int | None
    comparisons: list[ComparisonData]


class TableData(Struct, frozen=True):
    """A table or figure; printed: counts of printed numbers, at the paper's scale."""

    name: str
    title: str
    scale: str
    printed: Reproduced | None = None
    rows: list[RowData] = []
    claims: list[ClaimData] = []


def read_table_json(text: str) -> TableData | None:
    """The table in the text of such a file; None in any other text."""
    try:
        return json.decode(text, type=TableData)
    except (DecodeError, ValidationError):
        return None
