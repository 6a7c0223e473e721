"""Whether the texts of a table or figure follow from its records."""

import csv
import io
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpbench.comparison.reproduce.render import TEXTS, texts
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.tables.data import TableData, read_json
from dpbench.comparison.tables.privacy import AS_PLANNED
from dpbench.comparison.verify.records import equal
from dpbench.runs.config.search_path import FLAGS, options
from dpbench.runs.records.collect import RECORDS
from dpbench.runs.records.folder import RUNS
from dpbench.runs.records.reading import required, text_of
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, counted
from dpbench.system.validate import spelled_number


class Mismatch(NamedTuple):
    """An inconsistency in a file or a record."""

    source: str
    description: str


def unsupported_lines(path: Path, records: list[Record]) -> Iterator[str]:
    """How the texts of a table or figure differ from what follows from its records, those of the
    file. Computed tables, such as attacks, are skipped: they have more input than their records."""
    stem = path.name.removesuffix(f".{RECORDS}")
    try:
        if not any(path.with_name(f"{stem}.{suffix}").exists() for suffix in TEXTS):
            return  # records alone, as of an entry to a challenge
        data = path.with_name(f"{stem}.json")
        target = published_target(data)
        if target.table.compute:
            return
        reasons = required(read_json(data, TableData), data).not_run
        made = texts(target, records, reasons)
        for suffix in TEXTS:
            file = path.with_name(f"{stem}.{suffix}")
            if suffix in made:
                yield from _differences(suffix, required(text_of(file), file), made[suffix])
            elif file.exists():
                yield f"does not give {file.name}, which is beside it."
    except (UserError, KeyError, csv.Error) as error:
        yield f"cannot be verified: {error}"


def published_target(path: Path) -> Target:
    """The target of a table's JSON, by its command, with the results folder of the file; UserError
    for a file without a command, and for a table which is no option here."""
    command = required(read_json(path, TableData), path).command
    try:
        program, verb, name, *words = shlex.split(command)
    except ValueError:  # too few words, or a quote without its end
        program = verb = name = ""
    if (program, verb) != ("dpbench", "reproduce"):
        raise UserError(f"{path} has no command that makes it: make it again.")
    if name not in options("table"):
        raise UserError(
            f"table={name} is unknown here: name the folder that has table/{name}.yaml with "
            "--config-dir."
        )
    flags = tuple(word for word in words if word.partition("=")[0] in FLAGS)
    target = replace(target_of(name, [w for w in words if w not in flags]), flags=flags)
    return replace(target, config=target.config.changed(results_dir=str(path.parents[1])))


def conflicting_records(tables: Mapping[Path, Sequence[Record]]) -> Iterator[Mismatch]:
    """Runs whose records in two tables have different metrics. tables: the records by file."""
    first: dict[str, tuple[str, dict]] = {}
    for path, records in tables.items():
        for record in records:
            if record.config.get("seed") is None:  # whose runs share a digest
                continue
            source, metrics = first.setdefault(record.digest, (path.name, record.metrics))
            if not equal(metrics, record.metrics):
                yield Mismatch(
                    path.name, f"has another record of run {record.digest} than {source}."
                )


def tables_printed_before(
    tables: Mapping[Path, Sequence[Record]], runs: Iterable[Record]
) -> Iterator[Mismatch]:
    """The tables with other metrics of a run than its own record, such as of a run that was trained
    again after the table was printed."""
    own = {run.digest: run.metrics for run in runs if run.config.get("seed") is not None}
    for path, records in tables.items():
        different = [
            record.digest
            for record in records
            if not equal(own.get(record.digest, record.metrics), record.metrics)
        ]
        if different:
            yield Mismatch(
                path.name,
                f"has other metrics than the records in {RUNS}/ of {len(different)} of its "
                f"{counted(len(records), 'run')}, such as {different[0]}: `dpbench reproduce` "
                "prints the table from these, unless you remove them.",
            )


def _differences(suffix: str, published: str, made: str) -> Iterator[str]:
    found, given = (dict.fromkeys(_lines(suffix, text)) for text in (published, made))
    planned = any(AS_PLANNED in line for line in found)
    for line in found:
        # Of a row that was not run there is no record, but its plan is on the page.
        if line not in given and not (planned and (AS_PLANNED in line or line[:1] != "|")):
            yield f"has the line {line}, which does not follow from its records."
    if not planned:
        for line in given:
            if line not in found:
                yield f"lacks the line {line}, which follows from its records."


def _lines(suffix: str, text: str) -> Iterator[str]:
    """The lines of a file that follow from records alone."""
    if suffix.endswith("csv"):
        # To nine digits: sums depend on the order of records.
        yield from (",".join(map(_rounded, line)) for line in csv.reader(io.StringIO(text)))
    else:
        yield from filter(None, map(str.strip, text.splitlines()))


def _rounded(word: str) -> str:
    number = spelled_number(word)
    return f"{number:.9g}" if isinstance(number, float) else word
