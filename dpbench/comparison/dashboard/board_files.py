"""A board in a sentence, by verdicts on its methods, and as files: CSV and LaTeX."""

from collections.abc import Iterable, Mapping, Sequence

from dpbench.comparison.compare.verdict import BETTER, EQUIVALENT, UNDECIDED, WORSE
from dpbench.comparison.dashboard.values import delta_text, epsilon_text, gap_text, value_text
from dpbench.comparison.tables.grid import NO_VALUE, Grid, counted, csv_text, tally
from dpbench.comparison.tables.page import tabular
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
    where = f"{at}{board['facet']}{_seeds(judged)}, by {label}"
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


ENDS = ("mean", "low", "high")
GAP = ("difference", "difference_half", "difference_n")


def board_csv(board: dict) -> str:
    """One line per method, its metrics in the units of records, 0.866 for 86.6 %; empty where there
    is no number. Differences are to the board's baseline, paired by seed."""
    columns = [column["name"] for column in board["columns"]]
    head = (
        *("data", "delta", "first_rank", "last_rank", "method", "setting", "seeds", "diverged"),
        *("standing", "epsilon", "guarantee", "ms_per_step"),
        *(f"{name}, {part}" for name in columns for part in (*ENDS, *GAP)),
    )
    return csv_text(head, (_csv_line(board, row) for row in board["rows"]))


def _csv_line(board: dict, row: dict) -> list[str]:
    fields = [board["facet"], board["delta"], *(row["ranks"] or (None, None))]
    fields += [
        row[key]
        for key in ("method", "chosen", "seeds", "diverged", "standing", "epsilon", "guarantee")
    ]
    fields.append(row["ms"] and row["ms"][0])
    for cell in row["cells"]:
        values = cell or {}
        fields += [values.get(end) for end in ENDS]
        fields += values.get("gap") or [None] * len(GAP)
    return csv_fields(fields)


def csv_fields(fields: Iterable[object]) -> list[str]:
    """Values as the fields of a line, empty where there is none."""
    return ["" if field is None else str(field) for field in fields]


def board_tex(board: dict, names: Mapping[str, str]) -> str:
    """Method, metrics with their intervals, the difference of the first one, and epsilon.

    names: of methods, for display.
    """
    first, *others = board["columns"] or [None]
    baseline = names.get(board["baseline"]) if first else None
    labels = [f"{_label(first)}, difference to {baseline}"] if baseline else []
    labels = [*map(_label, [first] if first else []), *labels, *map(_label, others)]
    rows = []
    for row in board["rows"]:
        columns = zip(row["cells"], board["columns"], strict=True)
        texts = [_mean(cell, column["percent"]) for cell, column in columns]
        gaps = [_gap(row["cells"][0], first["percent"])] if baseline else []
        texts = [*texts[:1], *gaps, *texts[1:], epsilon_text(row["epsilon"])]
        rows.append((names[row["method"]], *texts))
    delta = "" if board["delta"] is None else f", δ = {delta_text(board['delta'])}"
    return tabular(f"{board['facet']}{delta}.", Grid("", ("method", *labels, "ε"), tuple(rows)))


def _label(column: dict) -> str:
    return f"{column['label']} (%)" if column["percent"] else column["label"]


def _mean(cell: dict | None, percent: bool) -> str:
    """A mean with its interval."""
    if cell is None:
        return NO_VALUE
    mean, *ends = (value_text(cell[end], percent) for end in ENDS)
    return mean if cell["low"] is None else f"{mean} [{', '.join(ends)}]"


def _gap(cell: dict | None, percent: bool) -> str:
    return gap_text(cell["gap"][:2], percent) if cell and cell["gap"] else NO_VALUE
