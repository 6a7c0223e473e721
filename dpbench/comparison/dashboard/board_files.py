"""A board as files: CSV with plain numbers, and LaTeX with the few columns of a paper's table."""

from collections.abc import Iterable, Mapping

from dpbench.comparison.dashboard.values import delta_text, epsilon_text, gap_text, value_text
from dpbench.comparison.tables.grid import NO_VALUE, Grid, csv_text
from dpbench.comparison.tables.page import tabular

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
    return ["" if field is None else marked(str(field)) for field in fields]


def marked(text: str) -> str:
    """A text that a spreadsheet would take for a formula, marked as text."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return text


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
