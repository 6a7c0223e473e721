"""Whether the texts of a table or figure follow from its records."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dpbench.comparison.reproduce.published import (
    beside,
    published_target,
    readable_records_of,
    records_of,
    text_of,
)
from dpbench.comparison.reproduce.render import TEXTS, texts
from dpbench.comparison.tables.privacy import AS_PLANNED
from dpbench.comparison.tables.verdict_words import IMPOSSIBLE
from dpbench.comparison.verify.records import equal
from dpbench.runs.records.collect import RECORDS
from dpbench.system.errors import UserError
from dpbench.system.validate import spelled_number

VERDICTS = re.compile(r"\d+ of \d+ printed|Not the paper's runs:|- (\d+ claims?|Constants|Order):")
"""The beginnings of lines of a page that count its verdicts."""

UNRECORDED = (AS_PLANNED, IMPOSSIBLE)
"""What a line says of a row that was not run, of which there is no record."""


class Problem(NamedTuple):
    """An inconsistency in a file or a record."""

    source: str
    description: str


def unsupported_lines(path: Path) -> Iterator[str]:
    """How a table's or figure's texts differ from what follows from its records: its numbers, its
    verdicts, its LaTeX, and the grids of its page.

    Computed tables, such as attacks, are skipped: they have more input than their records.
    """
    stem = path.name.removesuffix(f".{RECORDS}")
    try:
        page = path.with_name(f"{stem}.md")
        if not any(path.with_name(f"{stem}.{suffix}").exists() for suffix in TEXTS):
            return  # records alone, as of an entry to a challenge
        target = beside(published_target(page), path)
        if target.table.compute:
            return
        made = texts(target, records_of(path))
        for suffix in TEXTS:
            file = path.with_name(f"{stem}.{suffix}")
            if suffix in made:
                yield from _differences(suffix, text_of(file), made[suffix])
            elif file.exists():
                yield f"does not give {file.name}, which is beside it."
    except (UserError, KeyError, csv.Error) as error:
        yield f"cannot be verified: {error}"


def conflicting_records(tables: Sequence[Path]) -> Iterator[Problem]:
    """Runs whose records in two tables have different metrics; of files that can be read."""
    first: dict[str, tuple[str, dict]] = {}
    for path in tables:
        for record in readable_records_of(path):
            if record.config.get("seed") is None:  # whose runs share a digest
                continue
            source, metrics = first.setdefault(record.digest, (path.name, record.metrics))
            if not equal(metrics, record.metrics):
                yield Problem(
                    path.name, f"has another record of run {record.digest} than {source}."
                )


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


def _rounded(word: str) -> str:
    number = spelled_number(word)
    return f"{number:.9g}" if isinstance(number, float) else word
