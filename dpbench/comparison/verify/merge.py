"""`dpbench merge FOLDER FOLDER ... [out=FOLDER]`: the runs of several results folders in one."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbench.comparison.verify.records import equal
from dpbench.runs.config.commands import MergeCommand
from dpbench.runs.records.collect import collect_all, no_records
from dpbench.runs.records.folder import MODELS, RUNS, SWEEPS
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.record import Record
from dpbench.runs.records.sweep_list import read_list, write_list
from dpbench.runs.records.trained_model import has_model, model_file
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, counted, print_message
from dpbench.system.files import check_writable, files_in, write_atomically
from dpbench.system.validate import path_of

RESULTS = ("status", "metrics", "privacy", "history", "diagnostics", "calibration")
"""What two records of one run have in common, besides the settings that name it; others were added
by later versions, and provenance differs, as machines do."""

Sources = dict[str, tuple[Record, list[Path]]]
"""The first record of each run, and the folders that have one, by digest."""


def merge(arguments: Sequence[str]) -> str:
    """Copy the runs that the first folder, or `out`, lacks, and say how many; equal ones once.

    All are read first: UserError, with a message on each, where one is invalid or two of one run
    differ. An interrupted merge is completed by the same command.
    """
    folders = [path_of("FOLDER", argument) for argument in arguments if "=" not in argument]
    own = read("merge", MergeCommand, [argument for argument in arguments if "=" in argument])
    if len(folders) < 2 - bool(own.out):
        raise UserError("merge needs two results folders: dpbench merge FOLDER FOLDER.")
    target = path_of("out", own.out) if own.out else folders[0]
    known: Sources = {}
    problems = [*_read(target, known)] if target.is_dir() or not own.out else []
    there = {*known}
    for folder in folders:
        problems += [*_read(folder, known), *_links(folder)] if folder != target else []
    for problem in problems:
        print_message(problem)
    if problems:
        raise UserError(f"nothing was merged, because of {counted(len(problems), 'problem')}.")
    check_writable(target / RUNS)
    lists = _joined_lists(folders, target)
    for digest, (record, places) in known.items():
        _copy_model(record, places, target)
        if digest not in there:
            write_atomically(target / RUNS / f"{digest}.json", record.json().encode())
    for name, digests in lists.items():
        write_list(target, name, sorted(digests))
    return f"{target}: {counted(len(known), 'run')}, {len(known) - len(there)} of them new."


def _read(folder: Path, known: Sources) -> Iterator[str]:
    if not (entries := [*collect_all(folder)]) and folder.name == RUNS:
        raise no_records(folder, [])
    for entry in entries:
        if isinstance(entry, Unreadable):
            yield f"{folder}/{entry.source} {entry.reason}{entry.way_out}"
            continue
        if entry.config.get("seed") is None:  # whose runs share a digest
            continue
        first, places = known.setdefault(entry.digest, (entry, []))
        places.append(folder)
        pairs = {name: (getattr(first, name), getattr(entry, name)) for name in RESULTS}
        if differing := [name for name, values in pairs.items() if not equal(*values)]:
            yield (
                f"{entry.digest} has different {' and '.join(differing)} in "
                f"{places[0]}/{first.source} and {folder}/{entry.source}: keep one of them."
            )


def _links(folder: Path) -> Iterator[str]:
    """The links in another's folder, which may lead to any file of this machine, as sentences."""
    for kept in (folder / SWEEPS, folder / MODELS):
        for path in filter(Path.is_symlink, (kept, *files_in(kept, "*"))):
            yield f"{path} is a link: put in its place what it leads to."


def _copy_model(record: Record, places: Sequence[Path], target: Path) -> None:
    """Copy a run's model and preparation from the first folder that has them, unless they are in
    the target; before the record, with which the run is finished."""
    source = next((place for place in places if has_model(record, place)), None)
    if source is None or has_model(record, target):
        return
    ours, theirs = model_file(record, target), model_file(record, source)
    for suffix in (".preparation.json", ".pt"):
        if (file := theirs.with_suffix(suffix)).is_file():
            write_atomically(ours.with_suffix(suffix), file.read_bytes())


def _joined_lists(folders: Sequence[Path], target: Path) -> dict[str, set[str]]:
    joined: dict[str, set[str]] = {}
    for folder in (target, *folders):
        for name in [path.stem for path in files_in(folder / SWEEPS, "*.txt")]:
            joined[name] = joined.get(name, set()) | read_list(folder, name)
    return joined
