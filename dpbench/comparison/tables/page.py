"""A page: what a command shows, as Markdown, as LaTeX and as data."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from dpbench.comparison.tables.data import TableData, json_file
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.latex import escape, tabular
from dpbench.system.files import write_atomically

SPECIAL = re.compile(r"\||<(?=[A-Za-z/!?])|(?<=\])\(")

Block = str | Grid | Sequence[str]
"""A paragraph in Markdown, a grid under its heading, or the sentences of a list."""


@dataclass(frozen=True)
class Page:
    """Blocks under a title, with the command that makes them at the end; each may be empty.

    The same content always gives the same text.
    """

    title: str
    blocks: Sequence[Block]
    command: str = ""

    @property
    def markdown(self) -> str:
        made_by = f"Made by `{self.command}`" if self.command else ""
        title = f"# {self.title}" if self.title else ""
        parts = [title, *map(_markdown, self.blocks), made_by]
        return "\n\n".join(filter(None, parts)) + "\n"

    @property
    def data(self) -> TableData:
        opening = takewhile(lambda block: not isinstance(block, Grid), self.blocks)
        lists = (block for block in opening if not isinstance(block, str | Grid))
        return TableData(self.title, self.command, [note for block in lists for note in block])

    @property
    def files(self) -> dict[str, bytes]:
        """The page and its data by suffix."""
        return {"md": self.markdown.encode(), "json": json_file(self.data)}

    def write(self, path: Path, setting: str = "results_dir") -> None:
        """Write the Markdown to a file, and the data to NAME.json beside it.

        setting: the one that names the file. Raises UserError where they cannot be written.
        """
        write_atomically(path, self.markdown.encode(), setting=setting)
        write_atomically(path.with_suffix(".json"), json_file(self.data), setting=setting)

    def latex(self, caption: str = "") -> str:
        """The blocks as paragraphs and booktabs tables; caption: of all tables, after their own."""
        return "\n\n".join(part for block in self.blocks for part in self._latex(block, caption))

    def _latex(self, block: Block, caption: str) -> Iterator[str]:
        if isinstance(block, Grid):
            heads = (f"{text}." for text in (self.title, block.heading) if text)
            yield tabular(" ".join(filter(None, [*heads, caption])), block)
        else:
            yield from map(escape, [block] if isinstance(block, str) else block)


def _markdown(block: Block) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Grid):
        return "\n".join(f"- {sentence}" for sentence in block)
    heading = f"## {block.heading}\n\n" if block.heading else ""
    ruler = ["---", *["---:"] * (len(block.head) - 1)]
    rows = [(*row, *[""] * (len(block.head) - len(row))) for row in block.rows]
    return heading + "\n".join(map(_line, (block.head, ruler, *rows)))


def _line(texts: Sequence[str]) -> str:
    """A row of a table; bars are escaped, and line breaks replaced, as they would end a cell, and
    so is what would begin a tag or the address of a link."""
    cells = (SPECIAL.sub(r"\\\g<0>", " ".join(text.split())) for text in texts)
    return f"| {' | '.join(cells)} |"
