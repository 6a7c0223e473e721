"""What the renderers write, byte for byte."""

import csv
import re
from pathlib import Path

import pytest

from dpbench.comparison.reproduce.data import claims_file, to_csv
from dpbench.comparison.tables.grid import Grid, csv_text, number
from dpbench.comparison.tables.page import ESCAPES, Page, escape, tabular
from dpbench.comparison.tables.published import Published
from tests.latex import assert_compiles

COMMITTED = Path(__file__).parents[3] / "results/tables"

PRINTED = {("sgd", "acc_a"): Published("79.0", "0.0"), ("dpsgd", "acc_a"): Published("72.0", "0.1")}

MARKDOWN = """\
# Toy

0 of 2 printed numbers are reproduced, 2 undecided, none differs; 2 seeds.

Doe 2020, Table 1. Cells: mean ± standard error (number of runs). Scale: paper.

Groups: a = m, b = f.

- 1 claim: 1 not run.
- Distances to print in standard errors: 0 of 2 are beyond 2, of which chance alone would give \
0.1; the sum of their squares is 1 (p = 0.578 if all means were the same).
- Constants: of 2 printed numbers, 0 would be reproduced if every row had 0, \
and 0 if every row had its column's mean.
- Order: of 1 pairs of rows that differ in print, 0 have the printed order and 0 the \
reverse; 1 are undecided.

## Claims

| claim | source | ours | verdict |
| --- | ---: | ---: | ---: |
| fair is more accurate than dpsgd. | section 5 | - | not run |

## Ours

| method | acc_a | pi_ab | epsilon (PLD) |
| --- | ---: | ---: | ---: |
| sgd | 81.0 ± 1.0 (2) | - | inf |
| dpsgd | 72.0 ± 2.0 (2) | 9.0 ± 1.0 (2) | 3.10 |

## Ours and published

| method | column | ours | published | difference | verdict |
| --- | ---: | ---: | ---: | ---: | ---: |
| sgd | acc_a | 81.0 ± 1.0 (2) | 79.0 ± 0.0 | +2.0 | undecided |
| dpsgd | acc_a | 72.0 ± 2.0 (2) | 72.0 ± 0.1 | 0.0 | undecided |
| dpsgd | pi_ab | 9.0 ± 1.0 (2) | - | - | - |

## Order of the rows

| column | pairs apart in print | as printed | reversed | undecided |
| --- | ---: | ---: | ---: | ---: |
| acc_a | 1 | 0 | 0 | 1 |

## What a constant would pass

| column | within | printed | zeros that pass | means that pass |
| --- | ---: | ---: | ---: | ---: |
| acc_a | 2 x 1 | 2 | 0 | 0 |
"""

CSV = """\
method,column,ours,spread,n,published,published_spread,difference,verdict
sgd,acc_a,81,1,2,79.0,0.0,2,undecided
dpsgd,acc_a,72,2,2,72.0,0.1,0,undecided
dpsgd,pi_ab,9,1,2,,,nan,-
"""

TABULAR = r"""\begin{tabular}{lrrr}
\toprule
method & acc\_a & pi\_ab & epsilon (PLD) \\
\midrule
sgd & 81.0 $\pm$ 1.0 (2) & - & inf \\
dpsgd & 72.0 $\pm$ 2.0 (2) & 9.0 $\pm$ 1.0 (2) & 3.10 \\
\bottomrule
\end{tabular}
"""


def table(build):
    methods = ["sgd", "dpsgd"]
    return build(published=PRINTED, published_runs=2, methods=methods, notes=["One note."])


def test_markdown(build):
    text = table(build).page.markdown
    assert text.startswith(MARKDOWN)
    assert text.endswith("- The test set is also the validation set.\n- One note.\n")
    assert "Cells: with m = 2 margins of the column (acc_a, pi_ab 1), reproduced if" in text


def test_csv(build):
    assert to_csv(table(build)) == CSV


CLAIMS = """\
claim,statement,source,claim_verdict,claim_reason,condition,row,than,in,gap,low,high,n,margin,printed_gap,verdict,reason
fair,fair is more accurate than dpsgd.,section 5,holds,,,fair,dpsgd,acc_a,5,5,5,2,1,,holds,
away,Elsewhere.,section 6,not run,,,,,,,,,,,,not run,
"""


def test_the_csv_of_claims_has_a_line_for_each_comparison(build, run, runs, plain):
    more = [*runs, run("fair", 0, 0.75), run("fair", 1, 0.79 + 1e-9)]
    fair = plain["claims"]["fair"]
    away = {**fair, "statement": "Elsewhere.", "source": "section 6", "under": {"under": []}}
    claims = build(more, claims={"fair": fair, "away": away}).claims
    assert claims_file(claims) == {"claims.csv": CLAIMS.encode()}


def test_csv_has_no_dust_of_floating_point(build, run):
    printed = {("sgd", "acc_a"): Published("81.0", None)}
    runs = [run("sgd", 0, 0.81 - 1e-16), run("sgd", 1, 0.81 - 1e-16)]
    table = build(runs, published=printed, published_runs=2)
    assert "sgd,acc_a,81,0,2,81.0,,0,reproduced\n" in to_csv(table)


def test_latex(build):
    text = table(build).latex
    assert TABULAR in text
    assert text.count(r"\begin{tabular}") == len(table(build).grids)
    assert text.endswith("One note.\n")


def test_latex_escapes_everything_once():
    assert escape("50% of a_b & {c}#1 $x$ ~^") == (
        r"50\% of a\_b \& \{c\}\#1 \$x\$ \textasciitilde{}\textasciicircum{}"
    )
    assert escape("\\") == r"\textbackslash{}"
    assert escape("|d| <= 1 ± 2") == r"\textbar{}d\textbar{} \textless{}= 1 $\pm$ 2"


def test_signs_of_pages_are_those_of_mathematics_and_bars_stay_within_their_cell():
    assert (
        escape("ε ≈ 1 – 2 → x · y…") == r"$\varepsilon$ $\approx$ 1 -- 2 $\to$ x $\cdot$ y\dots{}"
    )
    text = Page("", [Grid("", ("a", "b"), (("|d|", "two\nlines"),))]).markdown.strip()
    assert text.splitlines()[-1] == r"| \|d\| | two lines |"


@pytest.mark.slow
def test_every_latex_file_compiles(tmp_path):
    texts = [path.read_text(encoding="utf-8") for path in COMMITTED.glob("*.tex")]
    assert_compiles(tmp_path, *texts, "".join(map(escape, ESCAPES)))


@pytest.mark.parametrize("text", ["<img src=x>", "</b>", "[x](javascript:y)", "a < 3 [1, 2] (5)"])
def test_no_cell_begins_a_tag_or_a_link(text):
    row = Page("", [Grid("", ("a",), ((text,),))]).markdown.splitlines()[-1]
    assert row.replace("\\", "") == f"| {text} |"
    assert not re.search(r"(?<!\\)<[\w/]|\]\(", row)
    assert ("\\" in row) == ("3" not in text)


@pytest.mark.parametrize("text", ["=A1", "@SUM(A1)", " =A1", "+cmd|' /C calc'!A0", "-1+SUM(A1)"])
def test_a_spreadsheet_computes_no_cell(text):
    assert list(csv.reader([csv_text([text], [])])) == [[f"'{text}"]]


@pytest.mark.parametrize("text", ["-", "-0.5", "+0.3 [-0.1, +0.7] (5)", "a=1", "1e-05"])
def test_a_number_is_a_number_to_a_spreadsheet(text):
    assert list(csv.reader([csv_text([text], [])])) == [[text]]


def test_rows_of_latex_are_filled_up_and_numbers_have_no_negative_zero():
    lines = tabular("", Grid("", ("a", "b"), (("[8]", "1"), ("*", "2")))).splitlines()
    assert lines[7:9] == [r"{[}8] & 1 \\", r"{*} & 2 \\"]
    assert (
        Page("", [Grid("", ("a", "b", "c"), (("1", "why"),))]).markdown.splitlines()[-1]
        == "| 1 | why |  |"
    )
    values = [-0.04, float("nan"), float("inf"), -0.05001, 2.0]
    assert [number(value, 1) for value in values] == ["0.0", "NaN", "inf", "-0.1", "2.0"]
