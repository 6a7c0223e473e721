"""A table as a paper prints it."""

import csv
import io

import pytest

from dpbench.comparison.tables.paper_layout import paper_files
from dpbench.comparison.tables.published import Published
from dpbench.system.errors import UserError
from tests.latex import assert_compiles

PRINTED = {("dpsgd", "acc_a"): Published("72.0", "0.1")}

MARKDOWN = """\
Toy. Mean ± standard error of 2 runs, published values in brackets; best private mean bold.

| method | accuracy, m (%) | privacy cost gap (%) | ε, RDP | ε, PLD |
| --- | ---: | ---: | ---: | ---: |
| SGD | 81.0 ± 1.0 | - | ∞ | ∞ |
| DP-SGD | 72.0 ± 2.0 [72.0] | 9.0 ± 1.0 | 3.41 [3.41] | 3.10 |
| fair | **77.0 ± 2.0** | **4.0 ± 1.0** | 3.41 [3.41] | 3.10 |
"""


@pytest.fixture
def files(build, edition, run, runs):
    """files(columns, runs, ...): the files as texts."""
    fair = [*runs, run("fair", 0, 0.75), run("fair", 1, 0.79)]

    def make(*columns, runs=fair, **changes):
        table = build(runs, published=changes.pop("published", PRINTED), **changes)
        made = paper_files(table, edition(**changes), columns)
        return {suffix: content.decode() for suffix, content in made.items()}

    return make


def test_the_markdown_has_ours_and_the_published_number_in_one_cell(files):
    assert files()["paper.md"] == MARKDOWN


def test_columns_are_those_asked_for_in_their_order(files):
    assert "| method | privacy cost gap (%) | ε, RDP | ε, PLD |" in files("pi_ab")["paper.md"]
    with pytest.raises(UserError, match="columns=acc is unknown"):
        files("acc")


def test_what_is_without_proof_and_without_privacy_is_not_the_best(files, run, runs):
    unproven = {"privacy/guarantee": "none"}
    others = [run("fair", seed, 0.79, **unproven) for seed in (0, 1)]
    text = files(runs=[*runs, *others], published={})["paper.md"]
    assert "no proof" in text
    assert "**" not in text
    assert "[72.0]" not in text


def test_the_csv_has_plain_numbers(files):
    line = list(csv.DictReader(io.StringIO(files()["paper.csv"])))[1]
    assert (line["method"], float(line["acc_a"]), line["acc_a published"]) == ("dpsgd", 72, "72.0")
    assert (line["acc_a n"], line["pi_ab spread"], line["condition"]) == ("2", "1", "")


def conditions(run, number):
    labels = [f"toy_{i}, epsilon {i + 1}" for i in range(number)]
    runs = [
        run(method, seed, 0.8, condition=label)
        for label in labels
        for method in ("sgd", "dpsgd")
        for seed in (0, 1)
    ]
    return {
        "runs": runs,
        "conditions": labels,
        "methods": ["sgd", "dpsgd"],
        "claims": {},
        "published": {},
    }


def test_conditions_span_their_rows_and_a_long_table_breaks(files, run, tmp_path):
    short, long = (files(**conditions(run, number))["paper.tex"] for number in (2, 30))
    assert r"\multirow{2}{*}{toy\_1, $\varepsilon$ = 2} & SGD & " in short
    assert r"\label{tab:toy_table1}" in short
    assert r"\begin{longtable}{llrrrr}" in long
    assert long.count(r"\midrule") == 30
    assert_compiles(tmp_path, files()["paper.tex"], short, long)
