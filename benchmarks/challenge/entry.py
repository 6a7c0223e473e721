"""An entry to a challenge: a method with its own settings, and what its search has found."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.comparison.search.report import Searched
from dpbench.comparison.search.request import SearchRequest
from dpbench.runs.config.search_path import as_flags
from dpbench.runs.config.settings import is_scientific, key_of
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.records.collect import RECORDS, records_in
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

from .protocol import Protocol

FREE = ("method", "optimizer", "schedule", "ema_decay")
"""The groups and settings that are an entry's own; the protocol sets all others."""


@dataclass(frozen=True)
class Entry:
    """A method with its own settings, entered under a name, and its searches for each condition."""

    protocol: Protocol
    name: str
    overrides: tuple[str, ...]
    searches: tuple[tuple[SearchRequest, ...], ...]

    @property
    def results(self) -> Path:
        return self.searches[0][0].config.results

    @property
    def requests(self) -> Iterator[SearchRequest]:
        """All of its searches."""
        return itertools.chain.from_iterable(self.searches)

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{self.protocol.target.name}-{self.name}"

    @property
    def words(self) -> list[str]:
        """The command that made it, without how it is executed."""
        named = [f"version={self.protocol.version}", f"name={self.name}"]
        return ["dpbench", "challenge", *named, *filter(is_scientific, self.overrides), *as_flags()]


@dataclass(frozen=True)
class Outcome:
    """What came of an entry under a condition: its searches, and the records of the runs that are
    tested."""

    searches: tuple[Searched, ...]
    tested: tuple[Record, ...]

    @property
    def trials(self) -> int:
        """The least number of trials of a search."""
        return min(len(each.trials) for each in self.searches)

    @property
    def records(self) -> list[Record]:
        """All records, tested or not."""
        return [*(record for each in self.searches for record in each.records), *self.tested]


def entry_of(protocol: Protocol, name: str, overrides: Sequence[str]) -> Entry:
    """The entry of a method, by default under its name; UserError for an invalid one."""
    methods = [o.partition("=")[2] for o in overrides if key_of(o) == "method"]
    named = name or methods[-1]
    searches = (protocol.searches(c, named, overrides) for c in protocol.target.conditions)
    entry = Entry(protocol, named, tuple(overrides), tuple(searches))
    if not all(run_of(request.config).method.private for request in entry.requests):
        raise UserError(
            f"method={methods[-1]} trains without privacy, and a challenge compares methods at one "
            "epsilon: enter a private one."
        )
    return entry


def check_entry(overrides: Sequence[str]) -> None:
    """UserError for an override of what the protocol sets, and without a method."""
    for override in overrides:
        key = key_of(override).split(".")[0]
        if key == "table" or (is_scientific(override) and key not in FREE):
            raise UserError(
                f"{override} is for the protocol to set: an entry may set {', '.join(FREE)}, and "
                "how it is executed."
            )
    if "method" not in map(key_of, overrides):
        raise UserError("challenge needs a method: dpbench challenge method=NAME.")


def read_submission(path: Path) -> list[Record]:
    """The records of a submitted file; UserError where one cannot be read."""
    if not path.is_file():
        raise UserError(f"recount={path} is not a file: a challenge writes NAME.{RECORDS}.")
    records = []
    for entry in records_in(path):
        source = entry.source.replace(f"{TABLES}/{path.name}", str(path), 1)
        if isinstance(entry, Unreadable):
            raise UserError(f"{source} {entry.reason}{entry.way_out}")
        records.append(replace(entry, source=source))
    return records
