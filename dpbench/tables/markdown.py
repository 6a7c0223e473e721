"""A table as Markdown."""

from collections.abc import Sequence

from dpbench.tables.grid import Grid
from dpbench.tables.table import Table


def to_markdown(table: Table) -> str:
    """The whole table as Markdown: the same runs always give the same text."""
    parts = [f"# {table.title}", *table.introduction, *_items(table.summary)]
    parts += [f"## {grid.heading}\n\n{grid_lines(grid)}" for grid in table.grids]
    if table.rules or table.notes:
        parts += ["## Rules and notes", *table.rules, *_items(table.notes)]
    return "\n\n".join(parts) + "\n"


def _items(sentences: Sequence[str]) -> list[str]:
    """A list, or nothing where there is none."""
    return ["\n".join(f"- {sentence}" for sentence in sentences)] if sentences else []


def grid_lines(grid: Grid) -> str:
    """One block; a row shorter than the head is filled up with empty cells."""
    ruler = ["---", *["---:"] * (len(grid.head) - 1)]
    rows = [(*row, *[""] * (len(grid.head) - len(row))) for row in grid.rows]
    return "\n".join([_line(grid.head), _line(ruler), *map(_line, rows)])


def _line(texts: Sequence[str]) -> str:
    """One line; a bar or a line break within a cell would end it."""
    cells = (" ".join(text.split()).replace("|", "\\|") for text in texts)
    return f"| {' | '.join(cells)} |"
