"""What a board says in one sentence: how its methods compare with the baseline, by verdicts."""

import math
from collections.abc import Mapping
from typing import TypeVar

from dpbench.metrics.paired_t import (
    BETTER,
    EQUIVALENT,
    UNDECIDED,
    WORSE,
    PairedTest,
    Verdict,
    judge,
    paired_test,
)
from dpbench.metrics.registry import parse_name
from dpbench.records.epsilon import rounded_up
from dpbench.tables.counts import counted, tally

BySeed = Mapping[str, float]

K = TypeVar("K")


def verdicts(tests: Mapping[K, PairedTest | None]) -> dict[K, Verdict]:
    """The verdicts on differences that are read together, but for those without a test.

    They are corrected for their number; see docs/verdicts.md.
    """
    found = {key: test for key, test in tests.items() if test}
    return dict(zip(found, judge([*found.values()]), strict=True))


def compare(metric: str, values: BySeed, others: BySeed) -> PairedTest | None:
    """The test of a difference paired by seed, positive where the first is better; None without a
    common seed, or where a value is not finite."""
    name = parse_name(metric)
    known = name.metric
    pairs = [(value, others[seed]) for seed, value in values.items() if seed in others]
    if known is None or not pairs or not all(math.isfinite(x) for pair in pairs for x in pair):
        return None
    ours, theirs = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    margin = name.margin.at(known.factor * max(abs(ours), abs(theirs)))
    gaps = [known.factor * (value - other) for value, other in pairs]
    return paired_test(gaps, margin).scaled(known.sign)


def answer(board: dict, names: Mapping[str, str]) -> str:
    """A board as a sentence to repeat, "" without a baseline. names: of methods, for display."""
    if board["baseline"] is None or not board["columns"]:
        return ""
    baseline, metric = names[board["baseline"]], board["columns"][0]["name"]
    seeds = sorted({row["seeds"] for row in board["rows"]})
    shown = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    at = "" if board["high"] is None else f"At ε {rounded_up(board['high'])}, "
    label = board["columns"][0]["label"]
    where = f"{at}{board['where']}, {shown} seed{'' if shown == '1' else 's'}, by {label}"
    found = [row["verdict"] for row in board["rows"] if row["verdict"]]
    if not found:
        return f"{where}: no other method with an epsilon can be compared with {baseline}."
    margin, known = parse_name(metric).margin, parse_name(metric).metric
    in_points = known and known.unit == "percent" and not margin.relative
    within = f"within {margin}{' points' if in_points else ''} of it"
    words: dict[str, tuple[str, str]] = {
        BETTER: (f"is better than {baseline}", f"are better than {baseline}"),
        EQUIVALENT: (f"is {within}", f"are {within}"),
        WORSE: ("is worse", "are worse"),
        UNDECIDED: ("is undecided", "are undecided"),
    }
    none = "" if BETTER in found else f"none is better than {baseline}, "
    return f"{where}: of {counted(len(found), 'other method')}, {none}{tally(found, words)}."
