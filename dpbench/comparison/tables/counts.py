"""Counts as text: `2 claims`, `1 holds, 3 undecided`; and times: `6 h`."""

from collections import Counter
from collections.abc import Iterable, Mapping


def counted(number: int, noun: str) -> str:
    """`1 claim`, `2 claims`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
    """The counts of verdicts: `5 hold, 1 fails (ece), 2 undecided`.

    words: each verdict as it reads for one and for several, in the order to list them. remarks: by
    verdict, what to add in brackets.
    """
    counts, remark = Counter(verdicts), remarks or {}
    return ", ".join(
        f"{counts[verdict]} {forms[counts[verdict] > 1]}"
        + (f" ({remark[verdict]})" if remark.get(verdict) else "")
        for verdict, forms in words.items()
        if counts[verdict]
    )
