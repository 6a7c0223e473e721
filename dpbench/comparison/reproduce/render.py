"""Renders the files of a target from its records: table or figure, numbers, records."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import UNSET

from dpbench.comparison.reproduce.checklist import table_checklist
from dpbench.comparison.reproduce.data import claims_file, table_json, to_csv
from dpbench.comparison.reproduce.figure import (
    NOT_PRIVATE,
    Picture,
    claims_blocks,
    figure_rows,
    judge_figure,
    picture,
    remarks,
)
from dpbench.comparison.reproduce.target import BUDGET, Target
from dpbench.comparison.tables.claims.comparisons import JudgedClaim
from dpbench.comparison.tables.conditions import conditions_of, row_name
from dpbench.comparison.tables.page import PageBlock
from dpbench.comparison.tables.paper_layout import paper_files
from dpbench.comparison.tables.privacy import EVERYTHING_WAS_RUN, NotRun, privacy_grid, privacy_of
from dpbench.comparison.tables.published import PublishedTable, read_epsilon, read_published
from dpbench.comparison.tables.runs import FlatRun, Row
from dpbench.comparison.tables.table import ResultTable, build_table
from dpbench.learning.metrics.calibration import CAVEAT
from dpbench.privacy.accountants import claimed
from dpbench.privacy.ledger import from_plain
from dpbench.privacy.statement import Statement
from dpbench.runs.config.buildable import TARGET, function
from dpbench.runs.config.plugins import published_files
from dpbench.runs.config.table_file import Drawing
from dpbench.runs.figures.formats import images
from dpbench.runs.records.collect import RECORDS
from dpbench.runs.records.divergence import nonfinite_gradients
from dpbench.runs.records.epsilon import legend
from dpbench.runs.records.frames import flat
from dpbench.runs.records.record import Record
from dpbench.system.grouping import grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS = ("csv", "claims.csv", "json", "md", "tex")
"""The suffixes of files that are text: numbers, verdicts, both as data, the page, and LaTeX."""


def render(
    target: Target, records: list[Record], not_run: NotRun = EVERYTHING_WAS_RUN
) -> dict[str, bytes]:
    """The files by suffix, including the records: the same records give the same bytes."""
    files, figure = _files(target, records, not_run)
    files |= images(figure) if figure else {}
    ordered = sorted(records, key=lambda record: record.digest)
    files[RECORDS] = "".join(record.json() + "\n" for record in ordered).encode()
    return files


def for_paper(
    target: Target, records: list[Record], not_run: NotRun, columns: Sequence[str] = ()
) -> dict[str, bytes]:
    """The files of a table as a paper prints it, by suffix; columns: by name, all if empty."""
    return paper_files(_built(target, records, not_run), target, columns)


def texts(
    target: Target, records: list[Record], reasons: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The files of `render` that are text, by suffix. reasons: why rows have no runs, by name."""
    files, _ = _files(target, records, NotRun(reasons))
    return {suffix: files[suffix].decode() for suffix in TEXTS if suffix in files}


def _files(
    target: Target, records: list[Record], not_run: NotRun
) -> tuple[dict[str, bytes], "Figure | None"]:
    if isinstance(target.table.figure, Drawing):
        draw = function("table", {TARGET: target.table.figure.target})
        return draw(target, records), None
    if target.table.figure:
        drawn = picture(target, records)
        return _figure(target, drawn, records, not_run), drawn.figure
    return _table(target, records, not_run), None


def judged_claims(target: Target, records: list[Record]) -> Sequence[JudgedClaim]:
    """The claims of a table or figure, judged by some of its runs."""
    if target.table.figure:
        return judge_figure(target, figure_rows(target, _runs(target, records), records))
    return _built(target, records, EVERYTHING_WAS_RUN).claims


def _table(target: Target, records: list[Record], not_run: NotRun) -> dict[str, bytes]:
    table = _built(target, records, not_run)
    parts = table.rows, table.claims, not_run.reasons, table.printed, table.cells
    files = table.files(to_csv(table)) | claims_file(table.claims)
    return {**files, "json": table_json(target, table.page, records, *parts)}


def _built(target: Target, records: list[Record], not_run: NotRun) -> ResultTable:
    fitted = any(column.metric == "test/ece_temperature" for column in target.columns)
    table = build_table(
        target,
        _runs(target, records),
        printed_numbers(target),
        epsilon=_printed_epsilons(target),
        notes=[*target.notes, *([CAVEAT] if fitted else []), *_terms(records, not_run.statements)],
        not_run=not_run,
        paper_accountant=target.table.claimed_by,
    )
    introduction = (*table.introduction, *target.part)
    foot = table_checklist(target, records)
    return replace(table, introduction=introduction, command=target.command, foot=foot)


def _runs(target: Target, records: Iterable[Record]) -> list[FlatRun]:
    return [
        {
            **flat(record),
            "condition": condition,
            "method": method,
            "variant": target.variant_of(record.config),
            "nonfinite": nonfinite_gradients(record),
            "privacy/claimed": _claimed(record.statement, target.table.claimed_by),
        }
        for condition, method, record in target.placed(records)
    ]


def _claimed(privacy: Statement, accountant: str) -> float | None:
    """The epsilon by the paper's accountant; the record may be from a table with another one."""
    epsilon, recorded = privacy["claimed"], privacy["claimed_by"]
    infinite = epsilon is not None and not math.isfinite(epsilon)
    # The accountant of the note on DP-SignSGD belongs to the method, not to a table.
    recorded_by_note = recorded == "note" and epsilon is not None
    if accountant == recorded or infinite or recorded_by_note:
        return epsilon
    return claimed(from_plain(privacy["ledger"]), privacy["delta"], accountant)


def _figure(
    target: Target, drawn: Picture, records: list[Record], not_run: NotRun
) -> dict[str, bytes]:
    table, rows = target.table, figure_rows(target, _runs(target, records), records)
    judged = judge_figure(target, rows)
    before, after = claims_blocks(judged)
    text = target.page(
        f"{table.paper}. Scale: {target.scale_label}. Seeds: {table.seeds}.",
        *target.part,
        *before,
        target.image,
        NOT_PRIVATE,
        *drawn.grids,
        *_reasons(target, not_run.reasons),
        *remarks(rows),
        *_privacy(target, records, rows, not_run.statements),
        *after,
        *table.notes,
        *target.notes,
    )
    numbers = drawn.numbers.to_csv(index=False, lineterminator="\n")
    data = table_json(target, text, records, rows, judged, not_run.reasons)
    return {**text.files, "csv": numbers.encode(), **claims_file(judged), "json": data}


def _terms(records: Iterable[Record], planned: Mapping[str, Statement]) -> list[str]:
    stated = [*(record.statement for record in records), *planned.values()]
    return [*filter(None, [legend(stated)])]


def _reasons(target: Target, reasons: Mapping[str, str]) -> list[str]:
    if not target.table.has_arms:
        return list(reasons.values())
    by_reason = grouped((reason, row) for row, reason in reasons.items())
    return [f"No runs of {'; '.join(rows)}: {reason}" for reason, rows in by_reason.items()]


def _privacy(
    target: Target, records: list[Record], rows: list[Row], planned: Mapping[str, Statement]
) -> list[PageBlock]:
    if target.table.epsilon is UNSET:
        return []
    printed, file = _printed_epsilons(target), target.table
    stated = privacy_of(rows, printed, file.baseline, planned)
    return [privacy_grid(stated, file.claimed_by), *_terms(records, planned)]


def printed_numbers(target: Target) -> PublishedTable:
    """The printed numbers of the methods and conditions that the table is restricted to; none on
    other data than the paper's."""
    if target.table.published is None or target.other_data:
        return {}
    printed = read_published(target.published, target.conditions[0].keys)
    rows = {row_name(label, method) for label in target.labels for method in target.table.methods}
    return {cell: number for cell, number in printed.items() if cell[0] in rows}


def _printed_epsilons(target: Target) -> dict[str, str]:
    """The printed epsilon by condition: from a file, or each condition's own budget where the
    table's `epsilon` is "budget"."""
    source, conditions = target.table.epsilon, target.conditions
    if source == BUDGET:
        declared = conditions_of(target.table.conditions)
        budgets = {c.label: dict(c.values) for c in conditions if c in declared}
        return {label: f"{values['privacy.epsilon']}" for label, values in budgets.items()}
    if not source or any(change.startswith("dataset=") for change in target.changes):
        return {}
    file, usual = published_files()[source], target.config["choices"]["dataset"]
    data = {c.label: str(dict(c.values).get("dataset", usual)) for c in conditions}
    return {label: read_epsilon(file, dataset) for label, dataset in data.items()}
