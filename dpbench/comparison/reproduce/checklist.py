"""`dpbench checklist TABLE|FOLDER`: what a reviewer asks of a comparison, answered from records.

The questions are those of Bao and Bindschaedler, R+R: Towards Reliable and Generalizable
Differentially Private Machine Learning, ACSAC 2024.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from dpbench.comparison.reproduce import review
from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page, tabular, write_texts
from dpbench.comparison.tables.sweep.page import metric_label
from dpbench.learning.metrics.derived import WORST_GROUP
from dpbench.learning.metrics.registry import parse_name
from dpbench.runs.config.commands import Checklist
from dpbench.runs.config.search_path import method_name, options
from dpbench.runs.records.record import Record
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, nearest
from dpbench.system.grouping import grouped

HEAD = (
    *("method", "data sets", "architectures", "budgets", "seeds"),
    *("better than {}", "Cohen's d", "search in epsilon", "ablation", "combined", "commit"),
)
RULES = (
    "Yes and no, with what the answer is counted from. Data sets, architectures and budgets: those "
    "with runs of the method and of the baseline; one is not several. Seeds: the fewest that a "
    f"condition has of both; below {review.FEW_SEEDS} is no. Better: the conditions by verdict on "
    "{metric} (margin {margin}; docs/verdicts.md), corrected for the methods under each; yes if it "
    "is better in some and worse in none. Cohen's d: the median over conditions of the "
    "mean difference over "
    "the pooled standard deviation, positive where the method is better. Conditions without this "
    "metric are not compared. Search in epsilon: whether a private search "
    "chose the settings; with the number of trials in the folder. Ablation: whether there is a run "
    "of the baseline that differs by its method alone. Combined: the combinations with "
    "augmentation, normalisation, features, schedule and temperature. Commit: whether all runs "
    "name the commit of their code, without changes to it."
)


def checklist(arguments: Sequence[str]) -> str:
    """Write OUT.md, OUT.csv and OUT.tex of the methods of a table or folder; returns the Markdown.

    Raises UserError without a table or folder that has records, and for an unknown method.
    """
    name, *rest = arguments or [""]
    if not name or "=" in name:
        raise UserError("checklist needs a table or a folder first: dpbench checklist results.")
    given = read("checklist", Checklist, rest)
    is_table = name.partition("-")[0] in options("table")
    folder = given.results_dir if is_table else Path(name)
    evidence = partial(review.evidence_of_table, name) if is_table else review.evidence_of_folder
    found = evidence(folder)
    found = found._replace(baseline=given.baseline or found.baseline)
    records = [entry.record for entry in found.entries]
    _check_metric(name, given.metric, records)
    grid = _grid(name, found, given)
    if not grid.rows:
        raise UserError(f"{name} has runs of {found.baseline} alone: add those of a method.")
    title, known = f"Checklist: {name}", parse_name(given.metric)
    rules = RULES.format(metric=metric_label(given.metric, records), margin=known.margin)
    markdown = Page(title, [grid, rules]).markdown
    write_texts(given.out, markdown, grid.csv, tabular(title, grid) + "\n")
    return markdown


def _check_metric(name: str, metric: str, records: Iterable[Record]) -> None:
    """UserError for a metric that no run has, such as the accuracy of a regression."""
    measured = {key for record in records for key in record.measured}
    if records and not any(review.has_metric(record, metric) for record in records):
        raise UserError(f"no run in {name} has the metric {metric}: {nearest(metric, measured)}")


def _lines(name: str, found: review.Evidence, given: Checklist) -> Iterator[tuple[str, ...]]:
    """A line for each method but the baseline and rows that are it after another search, or for the
    one that is asked for."""
    sides = grouped((entry.method, entry) for entry in found.entries)
    for key, method in {"baseline": found.baseline, "method": given.method}.items():
        if method and method not in sides:
            known = nearest(method, sides)
            raise UserError(f"no run in {name} is of the method {key}={method}: {known}")
    second = found.second_search.get(found.baseline)
    by_method = review.compared(found, given.metric)
    for method in [given.method] if given.method else sides:
        if method not in (found.baseline, second):
            search = found.searches.get(method, review.SearchSize(0, False))
            ours, others = sides[method], sides.get(found.baseline, [])
            found_of = ours, others, by_method.get(method, {}), given.metric, search
            yield method_name(method), *review.answers(*found_of)


def table_checklist(target: Target, records: Sequence[Record]) -> tuple[Grid, ...]:
    """The checklist at the foot of a table's page; by the accuracy of the worst group if all claims
    are on it; none where nothing is compared with the table's baseline, nor where rows have several
    searches, so that their runs are not of one setting."""
    columns = {column.name: column.metric for column in target.edition.columns}
    claimed = {columns.get(name) for claim in target.claims for name in claim.quantities}
    given = Checklist(metric=WORST_GROUP) if claimed == {WORST_GROUP} else Checklist()
    if target.table.searches > 1 or not all(
        review.has_metric(record, given.metric) for record in records
    ):
        return ()
    found = review.evidence_of_records(target, records, Path(target.config["results_dir"]))
    if found.baseline not in {entry.method for entry in found.entries}:
        return ()
    by = f", by {metric_label(given.metric, records)}" if given != Checklist() else ""
    grid = _grid(f"Checklist{by}: docs/verdicts.md#what-a-reviewer-asks", found, given)
    return (grid,) if grid.rows else ()


def _grid(heading: str, found: review.Evidence, given: Checklist) -> Grid:
    head = tuple(text.format(method_name(found.baseline)) for text in HEAD)
    return Grid(heading, head, tuple(_lines(heading, found, given)))
