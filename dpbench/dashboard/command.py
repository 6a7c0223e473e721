"""`dpbench report [results_dir=...] [out=report.html]`: the page; warns of files left out."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from dpbench.dashboard.commands import commands
from dpbench.dashboard.page import page
from dpbench.dashboard.summarise import Summary
from dpbench.dashboard.tables import tables
from dpbench.dashboard.texts import Texts
from dpbench.errors import UserError, nearest
from dpbench.files import write_atomically
from dpbench.records.collect import collect, no_records
from dpbench.records.reading import Unreadable
from dpbench.validate import path_of


@dataclass(frozen=True)
class Request:
    """Where the records are and where the page goes."""

    results_dir: Path = Path("results")
    out: Path = Path("report.html")


def report(arguments: list[str]) -> Path:
    """Write the page and return its path; one warning for all files that could not be read.

    Raises UserError for an unknown argument, where there is no record, or nowhere to write.
    """
    request = parse(arguments)
    summary, texts, unreadable = Summary(commands()), Texts(), []
    for one in collect(request.results_dir):
        if isinstance(one, Unreadable):
            unreadable.append(one)
        else:
            summary.add(one)
            texts.add(one.digest, one.record)
    if not len(summary):
        raise no_records(request.results_dir, unreadable)
    compared, unreadable_tables = tables(request.results_dir)
    unreadable += unreadable_tables
    _warn(unreadable)
    write_atomically(request.out, page(summary.data(compared, unreadable), texts.finish()).encode())
    return request.out


def parse(arguments: list[str]) -> Request:
    """The request of a command line; UserError for what is unknown."""
    known = {"results_dir", "out"}
    values = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key not in known:
            raise UserError(f"report takes no {key}: {nearest(key, known)}")
        values[key] = path_of(key, value, "file" if key == "out" else "folder")
    request = Request(**values)
    if request.out.is_dir():
        raise UserError(f"out={request.out} is a folder: name a file in it, as report.html.")
    return request


def _warn(unreadable: list[Unreadable]) -> None:
    if not unreadable:
        return
    first, *others = unreadable
    more = f", and {len(others)} more, which the page lists" if others else ""
    warnings.warn(f"left out {first.source}, which {first.reason}{more}.", stacklevel=3)
