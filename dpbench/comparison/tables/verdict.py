"""The rule by which a published number is reproduced, and each verdict as it is shown."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpbench.comparison.compare.claims import (
    FAILS,
    HOLDS,
    NO_DIFFERENCE,
    NOT_RUN,
    ON_AVERAGE,
    WITHIN,
)
from dpbench.comparison.compare.verdict import UNDECIDED
from dpbench.comparison.tables.edition import PAPER_SCALE, STANDARD_DEVIATION, Edition, TableColumn
from dpbench.comparison.tables.published import Published
from dpbench.learning.metrics.paired_t import LEVEL
from dpbench.system.grouping import grouped

MARGINS = 2
"""How many of a column's margins a mean may lie from print: other seeds, code and hardware make
the means of two laboratories differ more than two methods that share their seeds."""

REPRODUCED = "reproduced"
DIFFERS = "differs"
NOTHING_PUBLISHED = "-"
MISSING = "missing"
IMPOSSIBLE = "not possible"
NO_NUMBER = "no number"
OTHER_SCALE = "other scale"
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Distance:
    """Our mean minus a printed one, and what is known of its error, in the column's unit.

    error: its standard error, NaN for a single run; degrees: of freedom, by Welch (1947) where both
    spreads are known, and those of our spread where it stands for both; rounding: half a unit of
    the last printed digit; allowed: the distance that still counts as reproduced.
    """

    value: float
    error: float
    degrees: float
    rounding: float
    allowed: float

    @property
    def score(self) -> float:
        """The distance in standard errors, as a standard normal number; NaN without an error.

        The probability of Student's t is converted, so that few runs do not widen the scores.
        """
        if not self.error > 0:
            return math.nan
        from scipy.special import ndtri, stdtr

        # The lower tail is the one that does not round to 1.
        return math.copysign(
            float(ndtri(stdtr(self.degrees, -abs(self.value) / self.error))), self.value
        )

    @property
    def verdict(self) -> str:
        """REPRODUCED if the interval at 1 - 2 LEVEL, widened by the rounding, lies within what is
        allowed; DIFFERS if that at 1 - LEVEL lies beyond it; else UNDECIDED."""
        if not math.isfinite(self.error):
            return UNDECIDED
        distance = abs(self.value)
        if distance + self._half(1 - LEVEL) + self.rounding <= self.allowed:
            return REPRODUCED
        if distance - self._half(1 - LEVEL / 2) - self.rounding > self.allowed:
            return DIFFERS
        return UNDECIDED

    def _half(self, quantile: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.degrees, quantile)) * self.error if self.error else 0.0


def distance(
    edition: Edition, column: TableColumn, values: Sequence[float], printed: Published
) -> Distance:
    """Our runs' mean against a printed one. values [n]: in the column's unit, n at least 1.

    A standard error that was not printed is that of our runs' spread over the paper's runs.
    """
    n, theirs = len(values), edition.published_runs
    deviation = statistics.stdev(values) if n > 1 else math.nan
    errors = (deviation / math.sqrt(n), published_standard_error(edition, printed))
    degrees = _degrees(errors, (n, theirs))  # our spread has its own, however often it is used
    if printed.spread is None:
        errors = (errors[0], deviation / math.sqrt(theirs))
    return Distance(
        value=statistics.fmean(values) - float(printed.value),
        error=math.hypot(*errors),
        degrees=degrees,
        rounding=printed.rounding,
        allowed=MARGINS * column.margin.at(float(printed.value)),
    )


def _degrees(errors: tuple[float, float], runs: tuple[int, int]) -> float:
    """The degrees of freedom of a difference of means (Welch and Satterthwaite)."""
    parts = sum(e**4 / (n - 1) for e, n in zip(errors, runs, strict=True) if n > 1)
    return math.hypot(*errors) ** 4 / parts if parts > 0 else math.inf


def published_standard_error(edition: Edition, printed: Published) -> float:
    """The standard error of a printed mean, from whichever spread the paper printed; else 0."""
    spread = float(printed.spread or 0)
    if edition.table.spread == STANDARD_DEVIATION:
        return spread / math.sqrt(edition.published_runs)
    return spread


def reproduces(
    edition: Edition, column: TableColumn, values: Sequence[float], printed: Published | None
) -> tuple[str, Distance | None]:
    """The verdict on our runs against a printed mean by `rule`, and the distance that it is about.

    values [n]: n at least 1. The distance is None where there is nothing to judge.
    """
    if printed is None:
        return NOTHING_PUBLISHED, None
    if not all(map(math.isfinite, values)):
        return NO_NUMBER, None
    if edition.scale_label != PAPER_SCALE:
        return OTHER_SCALE, None
    if not column.judged:
        return NOT_JUDGED, None
    found = distance(edition, column, values, printed)
    return found.verdict, found


def scores_line(distances: Iterable[Distance]) -> str:
    """How far the judged cells lie from print in standard errors, beside what chance would give;
    "" where fewer than two have an error."""
    scores = [score for d in distances if math.isfinite(score := d.score)]
    if len(scores) < 2:
        return ""
    from scipy.special import chdtrc, ndtr

    total, beyond = sum(z * z for z in scores), sum(abs(z) > 2 for z in scores)
    p = float(chdtrc(len(scores), total))
    return (
        f"Distances to print in standard errors: {beyond} of {len(scores)} are beyond 2, of which "
        f"chance alone would give {2 * float(ndtr(-2)) * len(scores):.1f}; the sum of their "
        f"squares is {total:.0f} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'} if all means were "
        "the same)."
    )


def rule(edition: Edition) -> str:
    """The rule in words, as printed under the table."""
    if edition.scale_label != PAPER_SCALE:
        return (
            f"Cells: these runs are not at the paper's scale ({edition.scale_label}), so cells "
            f'with a published number say "{OTHER_SCALE}", and only claims and the order of the '
            "rows are judged."
        )
    columns = grouped((str(c.margin), c.name) for c in edition.columns if c.judged)
    margins = "; ".join(f"{', '.join(names)} {margin}" for margin, names in columns.items())
    runs = edition.published_runs
    divided = edition.table.spread == STANDARD_DEVIATION
    unjudged = not all(column.judged for column in edition.columns)
    return (
        f"Cells: with m = {MARGINS} margins of the column ({margins}), reproduced if the "
        "90% interval of ours - published lies within m; differs if the 95% one lies beyond m; "
        "otherwise undecided. Intervals are by Student's t with Welch's degrees of freedom, from "
        f"the spread over our runs and over the paper's {runs}"
        + (f" (a printed standard deviation being divided by sqrt({runs}))" if divided else "")
        + " (where the paper printed none, ours stands for both, with its own degrees of freedom), "
        f'and widened by half a unit of the last printed digit. "{NOTHING_PUBLISHED}" means that '
        "nothing was published"
        + (f', "{NOT_JUDGED}" that another column stands for the same printed numbers' * unjudged)
        + "."
    )


class VerdictLook(NamedTuple):
    """A verdict as it reads for several, and its class and its sign in the report."""

    several: str
    kind: str = "none"
    sign: str = "·"


LOOKS = {
    REPRODUCED: VerdictLook(REPRODUCED, "good", "✓"),
    DIFFERS: VerdictLook("differ", "bad", "✗"),
    HOLDS: VerdictLook("hold", "good", "✓"),
    WITHIN: VerdictLook("hold within a margin", "near", "✓"),
    NO_DIFFERENCE: VerdictLook(NO_DIFFERENCE, "near", "="),
    FAILS: VerdictLook("fail", "bad", "✗"),
    UNDECIDED: VerdictLook(UNDECIDED, "near", "?"),
    NOT_RUN: VerdictLook(NOT_RUN),
}
"""In the order in which verdicts are counted."""


FORMS: Mapping[str, tuple[str, str]] = {word: (word, look.several) for word, look in LOOKS.items()}
"""Each verdict as it reads for one and for several, for `tally`."""


def look_of(verdict: str) -> VerdictLook:
    """How a verdict is shown, on average or not; plainly, if it is none of LOOKS."""
    return LOOKS.get(verdict.removesuffix(ON_AVERAGE), VerdictLook(verdict))


def counted_verdict(number: int, verdict: str) -> str:
    """`1 differs`, `2 differ`."""
    return f"{number} {verdict if number == 1 else look_of(verdict).several}"
