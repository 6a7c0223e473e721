"""The page of findings: what tables and runs say together."""

import math

from msgspec import json

from dpbench.comparison.compare.side import AT_EDGE, Tuning
from dpbench.comparison.dashboard.findings import findings, page
from dpbench.comparison.tables.data import (
    ClaimData,
    ComparisonData,
    MeanInterval,
    Reproduced,
    RowData,
    TableData,
    read_json,
)

TERMS = ("dpsgd", "acc")


def claim(name, source="Doe 2020, section 5", verdict="undecided", reason="", seeds=None):
    gap = MeanInterval(0.4, -0.1, 0.9, 5)
    rows = [ComparisonData("", "bam", *TERMS, gap, 0.5, verdict, reason, "")]
    about = (f"{name}.", source, "bam", "on images", "full text")
    return ClaimData(name, *about, verdict, reason, MeanInterval(0.8, -0.2, 1.8, 5), seeds, rows)


def table(*claims, printed=None):
    rows = [
        RowData("", "dpsgd", "", ["a"], Tuning(64), 36.0),
        RowData("", "bam", "", ["b"], Tuning(64, AT_EDGE), 36.0),
    ]
    return TableData("Tuned", name="frontier_table5", printed=printed, rows=rows, claims=[*claims])


def line_of(text, word):
    (line,) = [line for line in text.splitlines() if word in line]
    return line


def test_a_claim_of_a_paper_has_its_effect_tuning_verdict_and_cost_and_ours_are_left_out():
    made = table(claim("One", seeds=15), claim("Two", source="ours, after Doe 2020"))
    text = page({"frontier_table5": made}, [], "").markdown
    said = line_of(text, "One.")
    for part in ("Doe 2020, section 5, frontier_table5", "+0.8 [-0.2, +1.8] (5)", "64 trials",
                 "1 was tuned at the edge", "| undecided |", "15 seeds, 0.2 h"):  # fmt: skip
        assert part in said
    assert "Two." not in text


def test_what_fails_comes_first_and_numbers_of_a_constant_do_not_count():
    made = table(claim("Held", verdict="holds"), claim("Failed", verdict="fails on average"))
    text = page({"frontier_table5": made}, [], "").markdown
    assert text.index("Failed.") < text.index("Held.")
    made = table(printed=Reproduced(54, 54, 8))
    text = page({"misalignment_table5": made}, [], "").markdown
    assert "| misalignment_table5 | 54 | 54 | 8 |" in text


def test_what_to_use_is_better_where_there_was_something_to_win(record_of, folder_of, tmp_path):
    """On images bam is better and dpsgd_f is not; on tables training without privacy is level."""
    made = [
        record_of(
            method,
            seed,
            accuracy=0.8 + share * gain + seed * (1 + len(method)) / 1e5,
            dataset=data,
            epsilon=math.inf if method == "sgd" else 3.0,
            guarantee="none" if method == "sgd" else "proven",
        )
        for method, gain in {"dpsgd": 0.0, "bam": 0.05, "dpsgd_f": -0.04, "sgd": 0.1}.items()
        for seed in range(4)
        for data, share in (("digits", 1.0), ("adult", 0.0))
    ]
    for method in ("dpsgd", "bam", "dpsgd_f"):
        for data in ("digits", "adult"):
            trial = record_of(method, 9, epsilon=3.0, dataset=data, validation=0.1)
            trial.metrics["validation/accuracy"] = trial.metrics.pop("test/accuracy")
            made.append(trial)
    text = findings([f"results_dir={folder_of(made)}", f"out={tmp_path / 'findings.md'}"])
    assert (tmp_path / "findings.md").read_text() == text
    data = read_json(tmp_path / "findings.json", TableData)
    assert (data.title, data.command.startswith("dpbench findings results_dir=")) == (
        "Findings",
        True,
    )
    none = "no evidence"
    assert f"| images | {none} | BAM (1 of 1 task) | {none} |" in text
    assert f"| tables | {none} | DP-SGD; nothing to win was shown on 1 task | {none} |" in text
    assert f"| text | {none} | {none} | {none} |" in text


def test_a_table_is_read_back_as_it_was_written():
    made = table(claim("One"))
    assert json.decode(json.encode(made), type=TableData) == made


def test_the_page_names_its_command_and_what_cannot_be_read_is_told(
    record_of, folder_of, tmp_path, capsys
):
    folder = folder_of([record_of()])
    (folder / "runs" / "damaged.json").write_text("{")
    arguments = [f"results_dir={folder}", f"out={tmp_path / 'f.md'}"]
    assert f"`dpbench findings {arguments[0]} {arguments[1]}`" in findings(arguments)
    assert "left out runs/damaged.json, which is not JSON" in capsys.readouterr().err
