"""The verdicts on numbers beside print and on claims: each word once, and how it is shown."""

from collections.abc import Mapping
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

REPRODUCED = "reproduced"
DIFFERS = "differs"
NOTHING_PUBLISHED = "-"
MISSING = "missing"
IMPOSSIBLE = "not possible"
NO_NUMBER = "no number"
OTHER_SCALE = "other scale"
NOT_JUDGED = "not judged"


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
