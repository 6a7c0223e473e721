"""What the README says is so."""

import json
import re
import shlex
from pathlib import Path

import pytest

from dpbench.audit.request import prepare_audit
from dpbench.comparison.dashboard.command import parse as parse_report
from dpbench.comparison.reproduce.render import for_paper
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.search.request import parse
from dpbench.comparison.tables.privacy import EVERYTHING_WAS_RUN
from dpbench.runs.config.commands import RunAuditCommand
from dpbench.runs.config.overrides import expand
from dpbench.runs.config.search_path import groups, options
from dpbench.runs.config.settings import split_settings
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.collect import readable_records_in

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "results/tables"
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^dpbench (.+?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_readme_is_short_and_its_table_is_what_its_command_prints():
    assert README.count("\n") < 120
    assert len(COMMANDS) > 7
    command = next(line for line in README.splitlines() if "layout=paper columns=" in line)
    name, columns = re.search(r"reproduce (\w+) layout=paper columns=([\w,]+)", command).groups()
    target, records = target_of(name, []), readable_records_in(TABLES / f"{name}.records.jsonl")
    files = for_paper(target, records, EVERYTHING_WAS_RUN, columns.split(","))
    assert files["paper.md"].decode().partition("\n\n")[2] in README


def test_it_counts_the_printed_numbers_that_were_reproduced():
    printed = [json.loads(path.read_text()).get("printed") for path in TABLES.glob("*.json")]
    counts = [tuple(each.values()) for each in printed if each]
    total, reproduced, beyond = map(sum, zip(*counts, strict=True))
    text = " ".join(README.split())
    assert f"of {total} printed numbers {reproduced}, and {beyond} that a constant" in text


def targets(cell: str) -> list[str]:
    """The names that the files of "Tables 4, 5; Figure 3" begin with, less the paper's."""
    kinds = {"Table": "table", "Figure": "fig", "Lemma": "lemma", "Theorem": "theorem"}
    named = re.findall(r"(Table|Figure|Lemma|Theorem)s? ([\d, ]+)", re.sub(r"\(.*?\)", "", cell))
    return [kinds[kind] + n for kind, numbers in named for n in re.findall(r"\d+", numbers)]


LESS_THAN_PRINTED = {"calibration_fig1", "calibration_fig2"}
"""Tables that are run in full as their files describe them, but show less than the paper's."""

PAPERS = re.findall(r"^\| \[(\w+)\]\(bench.+?\|(.+)\|$", README, re.MULTILINE)


@pytest.mark.parametrize("row", PAPERS, ids=lambda row: row[0])
def test_the_overview_of_what_was_run_is_true(row):
    paper, cells = row
    full, part, none = map(targets, cells.split("|"))
    pages = {path.stem for path in TABLES.glob(f"{paper}_*.md")}
    for number in full:
        assert f"{paper}_{number}" in pages
    for number in part:
        name = f"{paper}_{number}"
        assert (name in pages) == (name in LESS_THAN_PRINTED)
        assert name in pages or any(page.startswith(f"{name}-") for page in pages)
    for number in none:
        assert not any(re.split("[_-]", page)[1] == number for page in pages)
    tables = {
        path.stem.partition("_")[2]
        for path in (ROOT / "benchmarks" / paper / "table").glob("*.yaml")
    }
    numbered = {name for name in tables if re.fullmatch(r"(table|fig|lemma|theorem)\d+", name)}
    assert {*full, *part, *none} == numbered


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_ones_that_the_suite_takes(command):
    verb, *arguments = shlex.split(command)
    if verb in ("run", "epsilon"):
        for overrides in expand([a for a in arguments if a != "-m"]):
            prepare(run_config(overrides))
    elif verb == "audit":
        assert prepare_audit(split_settings("audit", RunAuditCommand, arguments)[1])[1] > 0
    elif verb == "recipe":
        prepare(run_config(arguments))
    elif verb == "search":
        assert parse(arguments).space.ranges
    elif verb == "reproduce":
        assert arguments[0] in options("table")
        prepare(run_config([f"+table={arguments[0]}", *arguments[1:]]))
    elif verb == "report":
        assert parse_report(arguments).out.suffix == ".html"
    else:
        known = options("dataset") if verb == "data" else groups()
        assert verb in ("data", "list")
        assert set(arguments) <= set(known)
