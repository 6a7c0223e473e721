"""The rows that frontier_table1 names as tuned at an edge are those whose searches say so."""

import csv
import math

from dpbench.reproduce.target import target_of
from dpbench.system.paths import conf_folder

SEARCHES = conf_folder().parent / "results" / "search"
OUTER = 0.1


def ends_at_an_edge(path):
    """Whether a chosen value is in the outer tenth of the values tried, on a log scale."""
    with path.open() as file:
        trials = list(csv.DictReader(file))
    keys = [key for key in trials[0] if key.startswith(("method.", "optimizer."))]
    return any(
        not OUTER
        < place([float(trial[key]) for trial in trials], float(trials[0][key]))
        < 1 - OUTER
        for key in keys
    )


def place(values, chosen):
    low, high = math.log(min(values)), math.log(max(values))
    return (math.log(chosen) - low) / (high - low)


def test_the_table_names_every_row_whose_search_ended_at_an_edge():
    target = target_of("frontier_table1", [])
    found = set()
    for path in SEARCHES.glob("frontier_table1-*.csv"):
        _, dataset, method, *other = path.stem.split("-")
        if not other and ends_at_an_edge(path):
            found |= {f"{c.label}, {method}" for c in target.conditions if dataset in c.label}
    assert len(found) == 27
    assert {*target.at_edge} == found
