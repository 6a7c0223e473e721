"""A grid of text cells, and how numbers, counts and times are formatted in it."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dpbench.learning.metrics.paired_t import PairedTest
from dpbench.runs.records.epsilon import marked, rounded_up

NO_VALUE = "-"

FORMULA = re.compile(r"\s*([=@]|[-+].*[A-Za-z]\s*[(|!'])")
"""What a spreadsheet may compute: it begins like a formula, and is no signed number."""

T = TypeVar("T")


@dataclass(frozen=True)
class Grid:
    """One block of a rendered table: a heading, column heads, and rows of text.

    The last cell of a row that is shorter than the head spans the other columns.
    """

    heading: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def csv(self) -> str:
        return csv_text(self.head, self.rows)


def csv_text(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A CSV file of a header and lines of as many texts; a spreadsheet shows what it would compute,
    such as =A1, behind an apostrophe."""
    text = io.StringIO()
    shown = (("'" + t if FORMULA.match(t) else t for t in line) for line in [head, *lines])
    csv.writer(text, lineterminator="\n").writerows(shown)
    return text.getvalue()


def grid_of(heading: str, columns: Mapping[str, Callable[[T], str]], items: Iterable[T]) -> Grid:
    """The grid with a row for each item. columns: by head, the text of an item."""
    rows = tuple(tuple(text(item) for text in columns.values()) for item in items)
    return Grid(heading, tuple(columns), rows)


def number(value: float, digits: int | None) -> str:
    """A number as text, never `-0.0`. digits: decimals, None for three significant digits."""
    if math.isnan(value):
        return "NaN"
    text = f"{value:.3g}" if digits is None else f"{value:.{digits}f}"
    return text.removeprefix("-") if math.isfinite(value) and not float(text) else text


def with_spread(value: float, spread: float, digits: int | None) -> str:
    """`80.5 ± 0.4`; without a spread that is NaN."""
    text = number(value, digits)
    return text if math.isnan(spread) else f"{text} ± {number(spread, digits)}"


def signed(value: float, digits: int | None) -> str:
    """A difference, with its sign unless it is written as 0."""
    text = number(value, digits)
    return f"+{text}" if value > 0 and float(text) else text


def epsilon_text(epsilon: float | str, guarantee: str) -> str:
    """An upper bound, rounded up and marked if it is only claimed; or why there is none."""
    return epsilon if isinstance(epsilon, str) else marked(rounded_up(epsilon), guarantee)


def interval_text(test: PairedTest, digits: int | None) -> str:
    """`+2.9 [+2.1, +3.7]`, or `+2.9` of differences that have no interval, such as a single one."""
    mean, ends = signed(test.mean, digits), test.interval()
    if math.isinf(ends[0]):
        return mean
    low, high = (signed(end, digits) for end in ends)
    return f"{mean} [{low}, {high}]"


def range_text(low: object, high: object) -> str:
    """`2`, `2 to 7`."""
    return " to ".join(map(str, dict.fromkeys((low, high))))


def duration(seconds: float) -> str:
    """`12 s`, `5 min`, `6 h`: at least two of a unit, but for seconds."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, seconds):.0f} s"


def tally(
    verdicts: Iterable[str],
    words: Mapping[str, tuple[str, str]],
    remarks: Mapping[str, str] | None = None,
) -> str:
    """The counts of verdicts: `5 hold, 1 fails (ece), 2 undecided`. words: each verdict as it reads
    for one and for several, in order. remarks: by verdict, what to add in brackets."""
    counts, remark = Counter(verdicts), remarks or {}
    return ", ".join(
        f"{counts[verdict]} {forms[counts[verdict] > 1]}"
        + (f" ({remark[verdict]})" if remark.get(verdict) else "")
        for verdict, forms in words.items()
        if counts[verdict]
    )
