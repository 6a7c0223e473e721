"""Many runs: those that are finished are left, the failed are listed, and the others go on."""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import UserError
from dpbench.execution.attempt import attempt_all
from dpbench.execution.launcher import Attempts, Failure
from dpbench.execution.prepare import launcher_of, run_of
from dpbench.execution.run import checkpoint_folder
from dpbench.files import check_writable, remove_parts, write_atomically
from dpbench.mechanism.method import Inapplicable
from dpbench.records import divergence
from dpbench.records.reading import load
from dpbench.records.record import record_path
from dpbench.training.interrupts import orderly
from dpbench.training.plan import Run, plan
from dpbench.training.progress import counting


@dataclass(frozen=True)
class Sweep:
    """Runs by the path of their record, given by their overrides, and what cannot be at all.

    name: of the file that lists what failed. config: the composed configuration of one of the runs,
    which says how they are carried out. built: what the overrides make.
    """

    name: str
    config: dict
    runs: Mapping[Path, list[str]]
    built: Mapping[Path, Run]
    impossible: Sequence[tuple[list[str], Inapplicable]]

    @property
    def folder(self) -> Path:
        return Path(self.config["results_dir"])

    @property
    def list_of_failures(self) -> Path:
        return self.folder / "failures" / f"{self.name}.txt"

    def missing(self) -> dict[Path, list[str]]:
        """The runs that have no record, or with again=true all of them."""
        again = self.config["again"]
        return {path: run for path, run in self.runs.items() if again or load(path) is None}

    def unfinished(self) -> dict[Path, list[str]]:
        """The missing runs, and those whose process was killed when only their record was there."""
        missing = self.missing()
        return {
            path: run
            for path, run in self.runs.items()
            if path in missing or checkpoint_folder(path).exists()
        }


def planned(name: str, runs: Iterable[list[str]]) -> Sweep:
    """The sweep over runs; UserError, before any work, for one that nobody could mean.

    A run that has a record was possible, so only the others are planned. Raises the reason where
    none of them is possible.
    """
    paths: dict[Path, list[str]] = {}
    built: dict[Path, Run] = {}
    impossible: list[tuple[list[str], Inapplicable]] = []
    reasons: dict[str, Inapplicable | None] = {}
    config: dict = {}
    for overrides in runs:
        config, run = run_of(overrides)
        path = record_path(Path(config["results_dir"]), config)
        # Runs that differ by their seed alone are planned alike, and planning may take seconds.
        kind = json.dumps({**config, "seed": None}, sort_keys=True)
        if kind not in reasons and (config["again"] or load(path) is None):
            reasons[kind] = _why_not(run)
        if reason := reasons.get(kind):
            impossible.append((overrides, reason))
        else:
            paths[path], built[path] = overrides, run
    launcher_of(config)  # which refuses what no place can have
    if not paths:
        raise impossible[0][1]
    return Sweep(name, config, paths, built, impossible)


def _why_not(run: Run) -> Inapplicable | None:
    try:
        plan(run)
    except Inapplicable as reason:
        return reason
    return None


def name_of(arguments: Iterable[str]) -> str:
    """A name for a sweep that is given as a command: the same for the same arguments."""
    return f"run-{hashlib.sha256(shlex.join(sorted(arguments)).encode()).hexdigest()[:8]}"


def run_and_report(sweep: Sweep, on_record: Callable[[Path], None] = lambda path: None) -> str:
    """Make the missing runs; what failed and why, as lines to print, or nothing.

    on_record is called with the path of every record, existing ones first.
    """
    return report(sweep, run_missing(sweep, on_record))


def run_missing(
    sweep: Sweep, on_record: Callable[[Path], None] = lambda path: None
) -> dict[Path, Failure]:
    """Make the missing runs; why those that failed did, by the path of the record."""
    unfinished = sweep.unfinished()
    for path in sweep.runs:
        if path not in unfinished:
            on_record(path)
    check_writable(sweep.folder / "runs")
    if not unfinished:
        return {}
    paths, failed = list(unfinished), {}
    with launched(sweep.config) as attempts, counting("runs", len(unfinished)) as count:
        for number, outcome in attempt_all(attempts, list(unfinished.values())):
            if isinstance(outcome, Failure):
                failed[paths[number]] = outcome
            else:
                on_record(outcome)
            count()
    return {path: failed[path] for path in paths if path in failed}


@contextmanager
def launched(config: dict) -> Iterator[Attempts]:
    """What carries out many runs of such a configuration, and ends in order if interrupted."""
    folder = Path(config["results_dir"]) / "launched"
    with orderly(), launcher_of(config).start(config["jobs"], folder) as attempts:
        yield attempts


def report(sweep: Sweep, failed: Mapping[Path, Failure]) -> str:
    """What failed and why, as lines to print, or nothing.

    It is also written to `results/failures/NAME.txt`, which is removed when nothing failed. Raises
    UserError where every run failed for one reason: then the request is wrong, or the machine.
    """
    failures = [(sweep.runs[path], failure) for path, failure in failed.items()]
    reasons = {failure.reason for failure in failed.values()}
    if len(failed) == len(sweep.runs) and len(reasons) == 1:
        _write(sweep, failures)
        raise UserError(reasons.pop())
    failures += [(run, Failure(str(reason))) for run, reason in sweep.impossible]
    where = _write(sweep, failures)
    if not failures:
        return ""
    total = len(sweep.runs) + len(sweep.impossible)
    lines = [f"{len(failures)} of {total} runs failed{where}; the same command tries them again:"]
    return "\n".join([*lines, *(f"  {shlex.join(run)}: {why.reason}" for run, why in failures)])


def summary(sweep: Sweep) -> str:
    """Which of the finished runs diverged or left gradients out, as lines to print, or nothing."""
    finished = ((run, load(path)) for path, run in sweep.runs.items())
    return divergence.summary([(shlex.join(run), one) for run, one in finished if one is not None])


def _write(sweep: Sweep, failures: list[tuple[list[str], Failure]]) -> str:
    """List what failed in a file, and say where, if it can be written."""
    path = sweep.list_of_failures
    if not failures:
        remove_parts(path.parent, path.name)
        with suppress(OSError):  # other sweeps have theirs in the folder, or there is none
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        return ""
    entries = [
        f"dpbench run {shlex.join(run)}\n{failure.reason}\n{failure.trace}"
        for run, failure in failures
    ]
    try:
        write_atomically(path, "\n".join(entries).encode())
    except UserError:  # the disk may be what they died of
        return ""
    return f", as {path} says too"
