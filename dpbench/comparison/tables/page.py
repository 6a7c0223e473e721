"""A page: what a command shows, as Markdown, as LaTeX for the booktabs package, and as data."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path

from dpbench.comparison.tables.data import TableData, json_file
from dpbench.comparison.tables.grid import Grid
from dpbench.system.errors import print_message
from dpbench.system.files import check_replaceable, write_atomically

LONG = 40
"""Papers' tables with more rows are longtables."""

GREEK = r"\varepsilon \delta \sigma \mu \alpha \beta \gamma \eta \lambda \rho"
SIGNS = r"\pm \approx \le \ge \times \to \uparrow \downarrow - \infty \cdot"

ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **dict(zip("εδσμαβγηλρ", map("${}$".format, GREEK.split()), strict=True)),
    **dict(zip("±≈≤≥×→↑↓−∞·", map("${}$".format, SIGNS.split()), strict=True)),
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
}
BOLD = re.compile(r"\*\*(.+?)\*\*")
LATEX_SPECIAL = re.compile("|".join(map(re.escape, ESCAPES)))


def escape(text: str) -> str:
    """Text with LaTeX's special characters escaped, in one pass so that escapes stay intact."""
    return LATEX_SPECIAL.sub(lambda match: ESCAPES[match[0]], text)


def tabular(caption: str, grid: Grid, label: str = "", grouped: bool = False) -> str:
    """A grid as one table; what is between ** is bold, as in Markdown.

    label: of a paper's table, which is a longtable if it is long. grouped: whether the first column
    names groups of rows, each in its first row: the name spans these unless pages may break.
    """
    long = bool(label) and len(grid.rows) > LONG
    width, texts = len(grid.head), 1 + grouped
    kinds = "l" * texts + "r" * (width - texts)
    title = [rf"\caption{{{escape(caption)}}}", *([rf"\label{{tab:{label}}}"] if label else [])]
    lines = [
        *(r"\toprule", _latex_line([*map(_cell, grid.head)], width), r"\midrule"),
        *([r"\endhead"] if long else []),
        *(
            _groups(grid, long)
            if grouped
            else (_latex_line([*map(_cell, r)], width) for r in grid.rows)
        ),
        r"\bottomrule",
    ]
    if long:
        lines = [rf"\begin{{longtable}}{{{kinds}}}", "".join(title) + r"\\", *lines]
        return "\n".join([r"{\footnotesize", *lines, r"\end{longtable}}"])
    lines = [*title, rf"\begin{{tabular}}{{{kinds}}}", *lines, r"\end{tabular}"]
    return "\n".join([r"\begin{table}", r"\centering\footnotesize", *lines, r"\end{table}"])


def _groups(grid: Grid, long: bool) -> Iterator[str]:
    starts = [place for place, row in enumerate(grid.rows) if row[0] or not place]
    for start, end in pairwise([*starts, len(grid.rows)]):
        (name, *first), *others = ([*map(_cell, row)] for row in grid.rows[start:end])
        if start:
            yield r"\midrule"
        spanning = name if long else rf"\multirow{{{end - start}}}{{*}}{{{name}}}"
        yield from (_latex_line(cells, len(cells)) for cells in ([spanning, *first], *others))


def _cell(text: str) -> str:
    return BOLD.sub(r"\\textbf{\1}", escape(text))


def _latex_line(cells: Sequence[str], width: int) -> str:
    *firsts, last = cells
    if len(cells) < width:
        last = rf"\multicolumn{{{width - len(firsts)}}}{{l}}{{{last}}}"
    line = " & ".join([*firsts, last]) + r" \\"
    # Else the rule or the end of the line above would take it as an argument.
    return f"{{{line[0]}}}{line[1:]}" if line[0] in "[*" else line


SPECIAL = re.compile(r"\||<(?=[A-Za-z/!?])|(?<=\])\(")

SUFFIXES = (".md", ".csv", ".tex")
"""Of the files that a command writes a table to."""

PageBlock = str | Grid | Sequence[str]
"""A paragraph in Markdown, a grid under its heading, or the sentences of a list."""


@dataclass(frozen=True)
class Page:
    """Blocks under a title, with the command that makes them at the end; each may be empty.

    The same content always gives the same text.
    """

    title: str
    blocks: Sequence[PageBlock]
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

    def _latex(self, block: PageBlock, caption: str) -> Iterator[str]:
        if isinstance(block, Grid):
            heads = (f"{text}." for text in (self.title, block.heading) if text)
            yield tabular(" ".join(filter(None, [*heads, caption])), block)
        else:
            yield from map(escape, [block] if isinstance(block, str) else block)


def write_texts(out: Path, markdown: str, csv: str, tex: str) -> None:
    """Write OUT.md, OUT.csv and OUT.tex, and say so; UserError where they cannot be written."""
    texts = {
        out.with_name(out.name + s): t for s, t in zip(SUFFIXES, (markdown, csv, tex), strict=True)
    }
    for path in texts:
        check_replaceable(path)
    for path, text in texts.items():
        write_atomically(path, text.encode(), setting="out")
    print_message(f"written: {out}{{{','.join(SUFFIXES)}}}")


def _markdown(block: PageBlock) -> str:
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
