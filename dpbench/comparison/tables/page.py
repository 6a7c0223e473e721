"""A page: what a command shows, as Markdown and as LaTeX."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.latex import escape, tabular

MADE_BY = "Made by "
"""Before the command at the end of a page."""

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
        made_by = f"{MADE_BY}`{self.command}`" if self.command else ""
        title = f"# {self.title}" if self.title else ""
        parts = [title, *map(_markdown, self.blocks), made_by]
        return "\n\n".join(filter(None, parts)) + "\n"

    def latex(self, caption: str = "") -> str:
        """The blocks as paragraphs and booktabs tables; caption: of all tables, after their own."""
        return "\n\n".join(part for block in self.blocks for part in self._latex(block, caption))

    def _latex(self, block: Block, caption: str) -> Iterator[str]:
        if isinstance(block, Grid):
            heads = (f"{text}." for text in (self.title, block.heading) if text)
            yield tabular(" ".join(filter(None, [*heads, caption])), block)
        else:
            yield from map(escape, [block] if isinstance(block, str) else block)


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
