"""What a board says in one sentence: how its methods compare with the baseline, by verdicts."""

from collections.abc import Mapping, Sequence

from dpbench.comparison.compare.verdict import BETTER, EQUIVALENT, UNDECIDED, WORSE
from dpbench.comparison.tables.grid import counted, tally
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.runs.records.epsilon import rounded_up


def epsilons_of(board: dict) -> str:
    """The budget of a board with one: `ε 3.00`, `ε 2.90 to 3.33`."""
    return f"ε {_ends(rounded_up(board['low']), rounded_up(board['high']))}"


def _ends(low: str, high: str) -> str:
    return " to ".join(dict.fromkeys((low, high)))


def answer(board: dict, names: Mapping[str, str]) -> str:
    """A board as a sentence to repeat, "" without a baseline. names: of methods, for display."""
    if board["baseline"] is None or not board["columns"]:
        return ""
    baseline, metric = names[board["baseline"]], board["columns"][0]["name"]
    at = "" if board["high"] is None else f"At {epsilons_of(board)}, "
    judged = [row for row in board["rows"] if row["verdict"]]
    label = board["columns"][0]["label"]
    where = f"{at}{board['where']}{_seeds(judged)}, by {label}"
    found = [row["verdict"] for row in judged]
    if not found:
        return f"{where}: no other method with an epsilon can be compared with {baseline}."
    margin, known = parse_name(metric).margin, metric_of(metric)
    in_points = known.unit == "percent" and not margin.relative
    points = f" point{'' if margin.absolute == 1 else 's'}" if in_points else ""
    within = f"within {margin}{points} of it"
    words: dict[str, tuple[str, str]] = {
        BETTER: (f"is better than {baseline}", f"are better than {baseline}"),
        EQUIVALENT: (f"is {within}", f"are {within}"),
        WORSE: ("is worse", "are worse"),
        UNDECIDED: ("is undecided", "are undecided"),
    }
    none = "" if BETTER in found else f"none is better than {baseline}, "
    return f"{where}: of {counted(len(found), 'other method')}, {none}{tally(found, words)}."


def _seeds(judged: Sequence[dict]) -> str:
    """The number of seeds that the verdicts of rows are by, each with a gap; "" without rows."""
    numbers = sorted({row["gap"][2] for row in judged})
    if not numbers:
        return ""
    shown = _ends(str(numbers[0]), str(numbers[-1]))
    return f", {shown} seed{'' if shown == '1' else 's'}"
