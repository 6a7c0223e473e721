"""Grids as LaTeX, for the booktabs package."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dpbench.comparison.tables.grid import Grid

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
SPECIAL = re.compile("|".join(map(re.escape, ESCAPES)))


def escape(text: str) -> str:
    """Text with LaTeX's special characters escaped, in one pass so that escapes stay intact."""
    return SPECIAL.sub(lambda match: ESCAPES[match[0]], text)


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
        *(r"\toprule", _line([*map(_cell, grid.head)], width), r"\midrule"),
        *([r"\endhead"] if long else []),
        *(_groups(grid, long) if grouped else (_line([*map(_cell, r)], width) for r in grid.rows)),
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
        yield from (_line(cells, len(cells)) for cells in ([spanning, *first], *others))


def _cell(text: str) -> str:
    return BOLD.sub(r"\\textbf{\1}", escape(text))


def _line(cells: Sequence[str], width: int) -> str:
    *firsts, last = cells
    if len(cells) < width:
        last = rf"\multicolumn{{{width - len(firsts)}}}{{l}}{{{last}}}"
    line = " & ".join([*firsts, last]) + r" \\"
    # Else the rule or the end of the line above would take it as an argument.
    return f"{{{line[0]}}}{line[1:]}" if line[0] in "[*" else line
