"""`dpbench merge FOLDER FOLDER ... [out=FOLDER]`: the runs of several results folders in one."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbench.comparison.tables.grid import counted
from dpbench.comparison.verify.records import equal
from dpbench.runs.config.commands import Merge
from dpbench.runs.records.collect import StoredRecord, collect
from dpbench.runs.records.folder import RUNS, SWEEPS
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.sweep_list import read_list, write_list
from dpbench.runs.records.trained_model import model_file
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, print_message
from dpbench.system.files import check_writable, files_in, write_atomically

RESULTS = ("config", "status", "metrics", "privacy", "history", "diagnostics", "calibration")
"""What two records of one run have in common; provenance differs, as machines do."""

Sources = dict[str, tuple[Path, StoredRecord]]


def merge(arguments: Sequence[str]) -> str:
    """Copy the runs that the first folder, or `out`, lacks, and say how many; equal ones once.

    All records are read first. If one is invalid, or two of one run differ, a message names each
    and UserError is raised before anything is written. An interrupted merge is completed by the
    same command.
    """
    folders = [Path(argument) for argument in arguments if "=" not in argument]
    own = read("merge", Merge, [argument for argument in arguments if "=" in argument])
    if len(folders) < 2 - bool(own.out):
        raise UserError("merge needs two results folders: dpbench merge FOLDER FOLDER.")
    target = Path(own.out) if own.out else folders[0]
    there: Sources = {}
    problems, new = [*_read(target, there)] if target.is_dir() else [], dict(there)
    for folder in folders:
        problems += _read(folder, new) if folder.resolve() != target.resolve() else []
    for problem in problems:
        print_message(problem)
    if problems:
        raise UserError(f"nothing was merged, because of {counted(len(problems), 'problem')}.")
    check_writable(target / RUNS)
    for digest in new.keys() - there.keys():
        _copy(*new[digest], target)
    _join_lists(folders, target)
    return f"{target}: {counted(len(new), 'run')}, {len(new) - len(there)} of them new."


def _read(folder: Path, known: Sources) -> Iterator[str]:
    """Add a folder's records, by digest, to those that are known; what is wrong, as sentences."""
    for entry in collect(folder):
        if isinstance(entry, Unreadable):
            yield f"{folder}/{entry.source} {entry.reason}."
            continue
        if entry.record.config.get("seed") is None:  # whose runs share a digest
            continue
        other, first = known.setdefault(entry.digest, (folder, entry))
        pairs = {n: (getattr(first.record, n), getattr(entry.record, n)) for n in RESULTS}
        if differing := [name for name, values in pairs.items() if not equal(*values)]:
            yield (
                f"{entry.digest} has different {' and '.join(differing)} in {other}/{first.source} "
                f"and {folder}/{entry.source}: keep one of them."
            )


def _copy(folder: Path, stored: StoredRecord, target: Path) -> None:
    """Copy a run's model and preparation, and then its record, with which it is finished."""
    ours, theirs = (model_file(stored.record, place) for place in (target, folder))
    for suffix in (".pt", ".preparation.json"):
        if (file := theirs.with_suffix(suffix)).is_file():
            write_atomically(ours.with_suffix(suffix), file.read_bytes())
    write_atomically(target / RUNS / f"{stored.digest}.json", stored.text.encode())


def _join_lists(folders: Sequence[Path], target: Path) -> None:
    """A sweep whose runs are in several folders gets the list of all of them."""
    for folder in folders:
        for name in [path.stem for path in files_in(folder / SWEEPS, "*.txt")]:
            ours = read_list(target, name) if (target / SWEEPS / f"{name}.txt").exists() else set()
            if theirs := read_list(folder, name) - ours:
                write_list(target, name, sorted(ours | theirs))
