"""A table as Markdown."""

from collections.abc import Sequence

from dpbench.tables.grid import Grid
from dpbench.tables.table import Table


def to_markdown(table: Table) -> str:
    """The whole table as Markdown: the same runs always give the same text."""
    parts = [f"# {table.title}", *table.introduction]
    parts += [f"## {grid.heading}\n\n{grid_lines(grid)}" for grid in table.grids]
    if table.rule or table.notes:
        parts += ["## Rule and notes", *filter(None, [table.rule])]
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def grid_lines(grid: Grid) -> str:
    """One block; a row shorter than the head is filled up with empty cells."""
    ruler = ["---", *["---:"] * (len(grid.head) - 1)]
    rows = [(*row, *[""] * (len(grid.head) - len(row))) for row in grid.rows]
    return "\n".join([_line(grid.head), _line(ruler), *map(_line, rows)])


def _line(texts: Sequence[str]) -> str:
    """One line; a bar or a line break within a cell would end it."""
    cells = (" ".join(text.split()).replace("|", "\\|") for text in texts)
    return f"| {' | '.join(cells)} |"
