"""Grids as LaTeX, for the booktabs package."""

import re
from collections.abc import Sequence

from dpbench.comparison.tables.grid import Grid

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
BOLD = re.compile(r"^\*\*(.*)\*\*$")
SPECIAL = re.compile("|".join(map(re.escape, ESCAPES)))


def escape(text: str) -> str:
    """Text with LaTeX's special characters escaped, in one pass so that escapes stay intact."""
    return SPECIAL.sub(lambda match: ESCAPES[match[0]], text)


def tabular(caption: str, grid: Grid) -> str:
    """A grid as one table; a cell between ** is bold, as in Markdown."""
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize",
        rf"\caption{{{escape(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(grid.head) - 1)}}}",
        r"\toprule",
        _line(grid.head, len(grid.head)),
        r"\midrule",
        *(_line(row, len(grid.head)) for row in grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _line(texts: Sequence[str], width: int) -> str:
    *cells, last = (BOLD.sub(r"\\textbf{\1}", escape(text)) for text in texts)
    if len(texts) < width:
        last = rf"\multicolumn{{{width - len(cells)}}}{{l}}{{{last}}}"
    line = " & ".join([*cells, last]) + r" \\"
    # Else the rule or the end of the line above would take it as an argument.
    return f"{{{line[0]}}}{line[1:]}" if line[0] in "[*" else line
