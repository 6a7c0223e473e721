"""A table as Markdown."""

import shlex
from collections.abc import Iterable, Sequence

from dpbench.tables.grid import Grid
from dpbench.tables.table import Table

MADE_BY = "Made by "
"""Before the command at the end of a page."""


def to_markdown(table: Table) -> str:
    """The whole table as Markdown: the same runs always give the same text."""
    parts = [f"# {table.title}", *table.introduction, bullets(table.summary)]
    parts += map(section, table.grids)
    if table.rules or table.notes:
        parts += ["## Rules and notes", *table.rules, bullets(table.notes)]
    parts += map(section, table.foot)
    return document(*parts, made_by(table.command) if table.command else "")


def document(*parts: str) -> str:
    """The parts of a Markdown file that are not empty, with a blank line between them."""
    return "\n\n".join(filter(None, parts)) + "\n"


def made_by(command: str) -> str:
    """The last line of a page: the command that makes it."""
    return f"{MADE_BY}`{command}`"


def command_of(text: str) -> list[str] | None:
    """The words of the command by which a page was made, after `dpbench reproduce`; None where it
    names none."""
    last = text.rstrip().rpartition("\n")[2]
    try:
        words = shlex.split(last.removeprefix(MADE_BY).strip("`"))
    except ValueError:  # a quote without its end
        return None
    made = last.startswith(MADE_BY) and words[:2] == ["dpbench", "reproduce"]
    return words[2:] if made and len(words) > 2 else None


def bullets(sentences: Iterable[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def section(grid: Grid) -> str:
    """A grid under its heading."""
    return f"## {grid.heading}\n\n{grid_lines(grid)}"


def grid_lines(grid: Grid) -> str:
    """A grid as a Markdown table; shorter rows are padded with empty cells."""
    ruler = ["---", *["---:"] * (len(grid.head) - 1)]
    rows = [(*row, *[""] * (len(grid.head) - len(row))) for row in grid.rows]
    return "\n".join([_line(grid.head), _line(ruler), *map(_line, rows)])


def _line(texts: Sequence[str]) -> str:
    """A row of a table; bars are escaped, and line breaks replaced, as they would end a cell."""
    cells = (" ".join(text.split()).replace("|", "\\|") for text in texts)
    return f"| {' | '.join(cells)} |"
