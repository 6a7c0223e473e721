"""`dpbench report [results_dir=...] [out=report.html]`: writes the page that compares records."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from dpbench.comparison.dashboard.documents import PublishedPages, audited, documents, pictures
from dpbench.comparison.dashboard.page import page
from dpbench.comparison.dashboard.record_texts import RecordTexts
from dpbench.comparison.dashboard.searches import searches
from dpbench.comparison.dashboard.summarise import Summary
from dpbench.comparison.dashboard.tables import pages, places, tables
from dpbench.comparison.tables.data import TableData
from dpbench.runs.config.commands import Report
from dpbench.runs.execution.rerun import CommandBuilder
from dpbench.runs.records.collect import StoredRecord, collect, no_records
from dpbench.runs.records.reading import Unreadable
from dpbench.system.arguments import read
from dpbench.system.errors import UserError
from dpbench.system.files import check_replaceable, write_atomically


def report(arguments: list[str]) -> Path:
    """Write the page and return its path; one warning for all files that could not be read.

    Raises UserError for an unknown argument, if there is no record, or if the page cannot be
    written.
    """
    folder, out = parse(arguments)
    found, damaged = pages(folder)
    summary, texts, unreadable = Summary(CommandBuilder(), places(found)), RecordTexts(), []
    for entry in collect(folder):
        if isinstance(entry, Unreadable):
            unreadable.append(entry)
        else:
            summary.add(entry)
            texts.add(entry.digest, entry.text)
    if not len(summary):
        raise no_records(folder, unreadable)
    unreadable += damaged
    _warn(unreadable)
    others = published(folder, found)
    data = summary.data(tables(found), unreadable, others)
    html = page(data, texts.finish(), texts.contained(), others.drawings)
    write_atomically(out, html.encode(), setting="out")
    return out


def report_of(records: Iterable[StoredRecord]) -> str:
    """The page that compares these records, without tables of papers."""
    summary, texts = Summary(CommandBuilder()), RecordTexts()
    for record in records:
        summary.add(record)
        texts.add(record.digest, record.text)
    return page(summary.data({}, []), texts.finish(), texts.contained(), {})


def published(folder: Path, pages: Mapping[str, TableData]) -> PublishedPages:
    """What the folder publishes beside records and tables of cells."""
    drawings = pictures(folder)
    return PublishedPages(
        documents(folder, pages, drawings), searches(folder), audited(folder), drawings
    )


def parse(arguments: list[str]) -> tuple[Path, Path]:
    """The folder of the records and the path of the page; UserError for invalid arguments."""
    values = read("report", Report, arguments)
    out = values.out
    if out.is_dir():
        raise UserError(f"out={out} is a folder: name a file in it, e.g. report.html.")
    check_replaceable(out)
    return values.results_dir, out


def _warn(unreadable: list[Unreadable]) -> None:
    if not unreadable:
        return
    first, *others = unreadable
    more = f", and {len(others)} more, which the page lists" if others else ""
    warnings.warn(f"left out {first.source}, which {first.reason}{more}.", stacklevel=3)
