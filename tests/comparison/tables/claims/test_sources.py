"""Every claim of every table: one source, one method, a regime, and what of the source was read."""

import re

import pytest

from dpbench.comparison.tables.conditions import conditions_of
from dpbench.comparison.tables.edition import OURS, claims_of
from dpbench.runs.config.search_path import options
from dpbench.runs.config.table_rules import table_of
from dpbench.runs.execution.run_config import run_config

AUTHORS = r"[A-Z][\w-]+(?: et al\.| and [A-Z]\w+)? \d{4}(?: \([\w -]+\))?"
PLACE = r"(?:abstract|caption|sections?|appendix|Table|Figure|README)\b[^,;:()]*"
SOURCE = re.compile(
    rf"(?P<ours>ours(?:, after (?!$))?)?(?:(?P<paper>{AUTHORS})(?:, |$))?(?P<place>{PLACE})?"
)


@pytest.mark.parametrize(
    "source",
    [
        "Zhao et al. 2025; Zou et al. 2026",
        "Zhang et al. 2024 and 2025",
        "Bao and Bindschaedler 2024, after De et al. 2022",
        "ours, after the papers of each",
        "ours, after ",
    ],
)
def test_two_papers_are_no_source(source):
    assert not SOURCE.fullmatch(source)


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("name", options("table"))
def test_a_claim_belongs_to_one_paper(name):
    table = table_of(run_config([f"+table={name}"])["table"])
    for claim in claims_of(table, conditions_of(table.conditions)):
        source = SOURCE.fullmatch(claim.source)
        assert source, f"{claim.name}: {claim.source}"
        assert any(source.groupdict().values())
        assert claim.method, claim.name
        assert claim.regime, claim.name
        assert claim.source.startswith(OURS) or claim.read, claim.name
        outside = source["paper"] and source["paper"] not in table.paper
        if outside and not claim.source.startswith(OURS):
            assert claim.statement.startswith(f"{claim.regime}: "), claim.name
