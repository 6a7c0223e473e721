"""`dpbench verify [TABLE|RECORD ...] [results_dir=] [rerun=N] [save=true]`: do settings, ledgers,
epsilons and tables agree?

Nothing is trained unless `rerun` asks for it.
"""

import shlex
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from dpbench.comparison.tables.page import Page
from dpbench.comparison.verify.records import contradictions, differences_of_rerun, has_data
from dpbench.comparison.verify.tables import (
    Mismatch,
    conflicting_records,
    tables_printed_before,
    unsupported_lines,
)
from dpbench.runs.config.commands import VerifyCommand
from dpbench.runs.config.search_path import as_flags
from dpbench.runs.records.collect import RECORDS, collect_all, no_records
from dpbench.runs.records.folder import RUNS, TABLES
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.record import Record, sha256
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, counted, nearest, print_message
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped
from dpbench.system.progress import counting

SAVED = "verified.md"
"""The page in the results folder, which the report shows."""

WITHOUT_DATA = (
    "records do not have the path of your own data, so its runs are not retrained: run the same "
    "command again with another results_dir, and compare the metrics."
)


def verify(arguments: Sequence[str]) -> tuple[str, list[Mismatch]]:
    """What was verified, as a sentence, and the problems; UserError where there is no record."""
    names = [argument for argument in arguments if "=" not in argument]
    settings = read("verify", VerifyCommand, [a for a in arguments if a not in names])
    folder = settings.results_dir
    entries = list(collect_all(folder))
    problems = [Mismatch(e.source, e.reason) for e in entries if isinstance(e, Unreadable)]
    records = [entry for entry in entries if isinstance(entry, Record)]
    of_files = grouped((record.source.partition(", line ")[0], record) for record in records)
    paths = files_in(folder / TABLES, f"*.{RECORDS}")
    tables = {path: of_files.get(f"{TABLES}/{path.name}", []) for path in paths}
    if not (names or entries or tables):
        raise no_records(folder, [])
    if names:
        wanted = {*names, *(Path(name).stem for name in names)}
        problems = [p for p in problems if _names(Path(p.source).name.partition(".")[0]) & wanted]
        broken = {Path(problem.source).stem for problem in problems}
        records, tables = _named(folder, names, records, tables, broken)
    # Those of one run count again where they are not as the first ones.
    by_text: dict[str, Record] = {}
    for record in records:
        by_text.setdefault(sha256(record.json()), record)
    records = [*by_text.values()]
    unread = {Path(problem.source).name for problem in problems}
    tables = {path: found for path, found in tables.items() if path.name not in unread}
    with counting("verified", len(records) + len(tables)) as count:
        for record in records:
            problems += [Mismatch(record.source, text) for text in contradictions(record)]
            count()
        for path, found in tables.items():
            problems += [Mismatch(path.name, text) for text in unsupported_lines(path, found)]
            count()
    problems += conflicting_records(tables)
    own = [record for record in records if record.source.startswith(f"{RUNS}/")]
    problems += tables_printed_before(tables, own)
    with_data = filter(has_data, records)
    quickest = sorted(with_data, key=lambda record: record.provenance.get("seconds", 0.0))
    retrained = quickest[: settings.rerun]
    if len(retrained) < min(settings.rerun, len(records)):
        print_message(WITHOUT_DATA)
    trained = 0
    for record in retrained:
        try:
            different = [*differences_of_rerun(record)]
            trained += 1
        except UserError as error:
            different = [f"cannot be retrained: {error}"]
        problems += [Mismatch(record.source, text) for text in different]
    done = f"verified {counted(len(records), 'record')} and {counted(len(tables), 'table')}"
    done += f", and trained {trained} again: {counted(len(problems), 'problem')}."
    if settings.save:
        _save(folder, arguments, done, problems)
    return done, problems


def _save(folder: Path, arguments: Sequence[str], done: str, problems: Sequence[Mismatch]) -> None:
    found = [f"{problem.source}: {problem.description}" for problem in problems]
    sentences = [f"{done[0].upper()}{done[1:]}", *found]
    command = shlex.join(["dpbench", "verify", *arguments, *as_flags()])
    Page("What dpbench verify found", [sentences], command).write(folder / SAVED)


def _named(
    folder: Path,
    names: Sequence[str],
    records: Sequence[Record],
    tables: Mapping[Path, list[Record]],
    unreadable: Set[str],
) -> tuple[list[Record], dict[Path, list[Record]]]:
    """The records and tables (at every scale) that are named: tables, digests or paths of records.

    Raises UserError for any other name, except for that of an unreadable record.
    """
    stems = {path: path.name.removesuffix(f".{RECORDS}") for path in tables}
    meant = [path for path, stem in stems.items() if _names(stem) & {*names}]
    chosen = {path: tables[path] for path in meant}
    digests = {Path(name).stem for name in names}
    known = set[str]().union(*map(_names, stems.values()))
    found = {record.digest for record in records} | unreadable
    for name in names:
        if name not in known and Path(name).stem not in found:
            raise UserError(
                f"{name} is neither a record in {folder} nor a table with records there, which "
                f"`dpbench reproduce` writes: {nearest(name, known)}"
            )
    digests |= {record.digest for of_table in chosen.values() for record in of_table}
    return [record for record in records if record.digest in digests], chosen


def _names(stem: str) -> set[str]:
    """What a file is named by: a table also without its scale."""
    return {stem, stem.partition("-")[0]}
