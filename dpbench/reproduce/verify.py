"""`dpbench verify [TABLE|RECORD ...] [results_dir=] [rerun=N]`: do settings, ledgers, epsilons and
tables agree?

Nothing is trained unless `rerun` asks for it.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpbench.config.compose import options
from dpbench.execution.verify import contradictions, differences_of_rerun, equal, has_data
from dpbench.records.collect import RECORDS, StoredRecord, collect, no_records
from dpbench.records.folder import TABLES
from dpbench.records.reading import Unreadable, parse
from dpbench.records.record import Record
from dpbench.reproduce.render import TEXTS, texts
from dpbench.reproduce.target import Target, target_of
from dpbench.system.errors import UserError, nearest, print_message
from dpbench.system.files import files_in
from dpbench.system.progress import counting
from dpbench.system.validate import integer, key_values, spelled_integer, spelled_number
from dpbench.tables.counts import counted
from dpbench.tables.markdown import command_of
from dpbench.tables.privacy import AS_PLANNED
from dpbench.tables.verdict import IMPOSSIBLE

DEFAULTS = {"results_dir": "results", "rerun": "0"}

DIGEST = re.compile("[0-9a-f]{16}")

VERDICTS = re.compile(r"\d+ of \d+ printed|Not the paper's runs:|- (\d+ claims?|Constants|Order):")
"""The beginnings of lines of a page that count its verdicts."""

WITHOUT_DATA = (
    "records do not have the path of your own data, so its runs are not retrained: run the same "
    "command again with another results_dir, and compare the metrics."
)

UNRECORDED = (AS_PLANNED, IMPOSSIBLE)
"""What a line says of a row that was not run, of which there is no record."""


class Problem(NamedTuple):
    """An inconsistency in a file or a record."""

    source: str
    description: str


def verify(arguments: Sequence[str]) -> tuple[str, list[Problem]]:
    """What was verified, as a sentence, and the problems; UserError where there is no record."""
    names = [argument for argument in arguments if "=" not in argument]
    settings = key_values("verify", DEFAULTS, [a for a in arguments if a not in names])
    folder = Path(settings["results_dir"])
    reruns = integer("rerun", spelled_integer(settings["rerun"]), least=0)
    entries = list(collect(folder))
    problems = [Problem(e.source, e.reason) for e in entries if isinstance(e, Unreadable)]
    stored = [entry for entry in entries if isinstance(entry, StoredRecord)]
    tables = files_in(folder / TABLES, f"*.{RECORDS}")
    if not (names or entries or tables):
        raise no_records(folder, [])
    if names:
        problems = [problem for problem in problems if Path(problem.source).stem in names]
        stored, tables = _named(
            folder, names, stored, tables, {Path(p.source).stem for p in problems}
        )
    with counting("verified", len(stored) + len(tables)) as count:
        for entry in stored:
            problems += [Problem(entry.source, text) for text in contradictions(entry.record)]
            count()
        for path in tables:
            problems += [Problem(path.name, text) for text in unsupported_lines(path)]
            count()
    problems += conflicting_records(tables)
    retrained = _quickest([entry for entry in stored if has_data(entry.record)], reruns)
    if len(retrained) < min(reruns, len(stored)):
        print_message(WITHOUT_DATA)
    for entry in retrained:
        problems += [Problem(entry.source, text) for text in differences_of_rerun(entry.record)]
    done = f"verified {counted(len(stored), 'record')} and {counted(len(tables), 'table')}"
    done += f", and trained {len(retrained)} again: {counted(len(problems), 'problem')}."
    return done, problems


def _named(
    folder: Path,
    names: Sequence[str],
    stored: Sequence[StoredRecord],
    tables: Sequence[Path],
    unreadable: Set[str],
) -> tuple[list[StoredRecord], list[Path]]:
    """The records and the tables that the names select; the tables at every scale.

    A name is that of a table, which selects its records too, or the digest or path of a record.
    Raises UserError for any other name, except for that of an unreadable record.
    """
    stems = {path: path.name.removesuffix(f".{RECORDS}") for path in tables}
    chosen = [path for path, stem in stems.items() if {stem, stem.partition("-")[0]} & {*names}]
    digests = {Path(name).stem for name in names}
    known = {*stems.values(), *(s.partition("-")[0] for s in stems.values())}
    records = {entry.digest for entry in stored} | unreadable
    for name in names:
        if name not in known and Path(name).stem not in records:
            raise UserError(
                _without_records(name, folder / TABLES)
                or _without_digest(name, folder)
                or f"{name} is neither a table nor a record here: {nearest(name, known)}"
            )
    digests |= {record.digest for path in chosen for record in records_of(path)}
    return [entry for entry in stored if entry.digest in digests], chosen


def _without_records(name: str, tables: Path) -> str:
    """Why a table has no records to be verified by, as a sentence; "" if it is not a table."""
    if name not in options("table"):
        return ""
    if (tables / f"{name}.md").exists() or [*tables.glob(f"{name}-*.md")]:
        return (
            f"{name} has no records in {tables} to be verified by; one that is computed without "
            f"runs has none, and `dpbench reproduce {name} results_dir=DIR` computes it again."
        )
    return f"{name} is not in {tables}: `dpbench reproduce {name}` makes it first."


def _without_digest(name: str, folder: Path) -> str:
    """That a digest has no record here, as a sentence; "" if the name is not that of a record."""
    if not DIGEST.fullmatch(digest := Path(name).stem):
        return ""
    return (
        f"no record {digest} is in {folder / 'runs'} or in a table beside it: run its command "
        "first, or name the results_dir of the run."
    )


def _quickest(stored: Sequence[StoredRecord], number: int) -> list[StoredRecord]:
    return sorted(stored, key=lambda s: s.record.provenance.get("seconds", 0.0))[:number]


def unsupported_lines(path: Path) -> Iterator[str]:
    """How a table's or figure's texts differ from what follows from its records: its numbers, its
    verdicts, its LaTeX, and the grids of its page.

    Computed tables, such as attacks, are skipped: they have more input than their records.
    """
    stem = path.name.removesuffix(f".{RECORDS}")
    try:
        page = path.with_name(f"{stem}.md")
        target = _beside(published_target(page), path)
        if "compute" in target.table:
            return
        made = texts(target, records_of(path))
        for suffix in TEXTS:
            file = path.with_name(f"{stem}.{suffix}")
            if suffix in made:
                yield from _differences(suffix, _text(file), made[suffix])
            elif file.exists():
                yield f"does not give {file.name}, which is beside it."
    except (UserError, KeyError, csv.Error) as error:
        yield f"cannot be verified: {error}"


def _differences(suffix: str, published: str, made: str) -> Iterator[str]:
    """The lines of a published text that its records do not give, and those that it lacks."""
    found, given = (dict.fromkeys(_lines(suffix, text)) for text in (published, made))
    recorded = [line for line in found if not any(words in line for words in UNRECORDED)]
    for line in recorded:
        if line not in given:
            yield f"has the line {line}, which does not follow from its records."
    if len(recorded) == len(found):  # else a row has a line of another kind
        for line in given:
            if line not in found:
                yield f"lacks the line {line}, which follows from its records."


def _lines(suffix: str, text: str) -> Iterator[str]:
    """The lines of a file that follow from records alone."""
    if suffix.endswith("csv"):
        # To nine digits: sums depend on the order of records.
        yield from (",".join(map(_rounded, line)) for line in csv.reader(io.StringIO(text)))
    else:
        lines = map(str.strip, text.splitlines())
        yield from (
            line for line in lines if suffix != "md" or line[:1] == "|" or VERDICTS.match(line)
        )


def _beside(target: Target, path: Path) -> Target:
    """The target with the results folder of a published file, for the searches beside it."""
    return replace(target, config={**target.config, "results_dir": str(path.parents[1])})


def _text(path: Path) -> str:
    """The text of a published file; UserError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{path} cannot be read ({reason}).") from error


def records_of(path: Path) -> list[Record]:
    """The readable records in a table's file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [r for line in lines if isinstance(r := parse(line, path.name), Record)]


def _rounded(word: str) -> str:
    number = spelled_number(word)
    return f"{number:.9g}" if isinstance(number, float) else word


def published_target(page: Path) -> Target:
    """The target of a published page, by the command at its end.

    Raises UserError for a page without one, and for that of a table which is no option here.
    """
    command = command_of(_text(page))
    if command is None:
        raise UserError(f"{page} does not end with its command: make it again.")
    name, *words = command
    if name not in options("table"):
        raise UserError(
            f"table={name} is unknown here: name the folder that has table/{name}.yaml with "
            "--config-dir."
        )
    return target_of(name, words)


def conflicting_records(tables: Sequence[Path]) -> Iterator[Problem]:
    """Runs whose records in two tables have different metrics."""
    first: dict[str, tuple[str, dict]] = {}
    for path in tables:
        for record in records_of(path):
            source, metrics = first.setdefault(record.digest, (path.name, record.metrics))
            if not equal(metrics, record.metrics):
                yield Problem(
                    path.name, f"has another record of run {record.digest} than {source}."
                )
