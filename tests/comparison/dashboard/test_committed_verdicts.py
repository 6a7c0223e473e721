"""The report of the committed results says of no method what a committed table does not."""

from pathlib import Path

import pytest

from dpbench.comparison.compare.verdict import BETTER, EQUIVALENT, UNDECIDED, WORSE
from dpbench.comparison.dashboard.summarise import summary_of
from dpbench.comparison.dashboard.tables import pages, places
from dpbench.learning.metrics.derived import WORST_GROUP

RESULTS = Path(__file__).parents[3] / "results"
METRICS = {"accuracy": "test/accuracy", "worst_group": WORST_GROUP}
PROCEDURES = {f"frontier_table{number}" for number in (9, 10, 11, 12, 13)}
SAID = {
    "holds": BETTER, "holds within a margin": EQUIVALENT, "no difference": EQUIVALENT,
    "fails": WORSE, "undecided": UNDECIDED,
}  # fmt: skip


@pytest.fixture(scope="module")
def contests():
    return summary_of(RESULTS, lambda config: "", places(pages(RESULTS)[0]))[0].contests


@pytest.fixture(scope="module")
def reported(contests):
    """By table, condition, row, baseline's row and metric: the report's verdict and its reason."""
    found = {}
    for contest in contests:
        places_of = {c.method: c.place for c in contest.candidates}
        for one in map(contest.by, contest.metrics):
            base = places_of.get(one.baseline.method) if one.baseline else None
            for method, verdict in one.judged.items():
                place = places_of[method]
                if base and place and place.row.records and place.table == base.table:
                    about = (place.table, place.row.condition, place.row.method, base.row.method)
                    found[(*about, one.metric)] = verdict
    return found


@pytest.fixture(scope="module")
def tabled():
    """The same of the comparisons of claims that need a gap in the direction of the metric: a claim
    that a row is behind by at most some size holds without one."""
    return {
        (name, c.condition, c.row, c.than, METRICS[c.quantity]): c
        for name, table in pages(RESULTS)[0].items()
        for claim in table.claims
        for c in claim.comparisons
        if c.quantity in METRICS and c.verdict in SAID
        if c.verdict != "holds" or c.gap.low > 0
    }


@pytest.mark.slow
def test_no_verdict_of_the_report_contradicts_a_table(reported, tabled):
    """Two families of comparisons may have different corrections, so that one decides more; but
    none says the opposite, or decides what a reason leaves undecided in the other."""
    shared = reported.keys() & tabled.keys()
    assert len(shared) > 20
    for about in shared:
        ours, theirs = reported[about], tabled[about]
        words = {ours.verdict, SAID[theirs.verdict]} - {UNDECIDED}
        assert len(words) <= 1, about
        if theirs.reason and not theirs.headroom:
            assert ours.verdict == UNDECIDED, about


@pytest.mark.slow
def test_the_baseline_is_never_shown_by_a_second_search(reported):
    assert not {about for about in reported if about[3] == "dpsgd_again"}


@pytest.mark.slow
def test_rows_of_a_table_with_several_searches_are_compared_by_all_of_them(contests):
    seeds = {}
    for number, contest in enumerate(contests):
        for one in contest.candidates:
            if one.place and one.place.table in PROCEDURES:
                of = seeds.setdefault((number, one.place.table), {})
                of[one.method] = {run.row["seed"] for run in one.group.runs}
    several = {key: of for key, of in seeds.items() if len(of) > 1}
    assert {table for _, table in several} >= {"frontier_table9", "frontier_table13"}
    for key, of in several.items():
        assert set.intersection(*of.values()), key
    units = {c.unit for c in contests if c.baseline and c.baseline.place}
    assert units == {("seed", "seeds"), ("search", "searches")}
