"""Sweeps of many runs: finished runs are reused, and failed runs are listed at the end."""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.runs.config.overrides import naming_run, short_names
from dpbench.runs.execution.attempt import attempt_all
from dpbench.runs.execution.launcher import Failure, Outcome
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.records import divergence
from dpbench.runs.records.code import stale_among
from dpbench.runs.records.folder import FAILURES, LAUNCHED, RUNS
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.training.plan import plan
from dpbench.runs.training.progress import running_steps
from dpbench.runs.training.run import Run
from dpbench.step.mechanism.method import Inapplicable
from dpbench.system.errors import UserError
from dpbench.system.files import check_writable, remove_parts, write_atomically
from dpbench.system.interrupts import graceful_interrupts
from dpbench.system.progress import counting


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep by the path of the record, and impossible combinations. name: that of the
    file that lists failures. config: that of one of the runs, for the settings of execution. built:
    the runs that the configurations describe."""

    name: str
    config: RunConfig
    runs: Mapping[Path, RunConfig]
    built: Mapping[Path, Run]
    impossible: Sequence[tuple[RunConfig, Inapplicable]]

    @property
    def folder(self) -> Path:
        return self.config.results

    def unfinished(self) -> dict[Path, RunConfig]:
        """The runs that are missing or not completely tracked."""
        return {path: run for path, run in self.runs.items() if run.is_unfinished()}


def plan_sweep(
    name: str,
    runs: Iterable[Sequence[str]],
    committed: Callable[[str], Record | None] = lambda digest: None,
) -> Sweep:
    """The sweep over runs, given as overrides; UserError, before any work, for invalid ones.

    A run that has a record was possible, so only the others are planned. If no run is possible,
    raises the reason. committed: the record of a run elsewhere than in `runs/`, by its digest.
    """
    configs: dict[Path, RunConfig] = {}
    built: dict[Path, Run] = {}
    impossible: list[tuple[RunConfig, Inapplicable]] = []
    reasons: dict[str, Inapplicable | None] = {}
    combinations = [*runs]
    for number, overrides in enumerate(combinations):
        with naming_run(combinations, number):
            config = run_config(overrides)
            if not config.path.exists():
                config = replace(config, committed=committed(config.digest))
            run = run_of(config)
            # Runs that differ only by their seed have the same plan, which may take seconds.
            without_seed = json.dumps({**config.plain, "seed": None}, sort_keys=True)
            if without_seed not in reasons and config.is_missing():
                reasons[without_seed] = None
                try:
                    plan(run)
                except Inapplicable as reason:
                    reasons[without_seed] = reason
        _check_same(configs.setdefault(config.path, config), config)
        configs[config.path] = config
        if impossible_by := reasons.get(without_seed):
            impossible.append((config, impossible_by))
        else:
            built[config.path] = run
    if not built:
        raise impossible[0][1]
    return Sweep(name, config, {path: configs[path] for path in built}, built, impossible)


def _check_same(one: RunConfig, other: RunConfig) -> None:
    if differing := sorted(k for k in one.plain if k != "choices" and one[k] != other[k]):
        what = " and ".join(differing)
        raise UserError(
            f"the sweep has one run with several values of {what}, by which no run is named: give "
            "one value, or a results_dir for each in a command of its own."
        )


def name_of(arguments: Iterable[str]) -> str:
    """A name for the sweep of a command line: the same for the same arguments."""
    return f"run-{hashlib.sha256(shlex.join(sorted(arguments)).encode()).hexdigest()[:8]}"


def run_and_report(sweep: Sweep, on_record: Callable[[Path], None] = lambda path: None) -> str:
    """Execute the missing runs, and return the failures as lines to print, or "". on_record: called
    with the path of every record, existing ones first."""
    return report(sweep, run_missing(sweep, on_record))


def run_missing(
    sweep: Sweep, on_record: Callable[[Path], None] = lambda path: None
) -> dict[Path, Failure]:
    """Execute the missing runs, and return the failures by the path of the record."""
    unfinished = sweep.unfinished()
    for path in sweep.runs:
        if path not in unfinished:
            on_record(path)
    if not unfinished:
        return {}
    check_writable(sweep.folder / RUNS)
    paths, failed = list(unfinished), {}
    with launching(sweep.config, "runs", len(paths)) as outcomes:
        for number, outcome in outcomes(list(unfinished.values())):
            if isinstance(outcome, Failure):
                failed[paths[number]] = outcome
            else:
                on_record(outcome)
    return {path: failed[path] for path in paths if path in failed}


Outcomes = Callable[[Sequence[RunConfig | Failure]], Iterator[tuple[int, Outcome]]]
"""Executes runs, but for those that are refused already; yields the number and the outcome of each
as it ends."""


@contextmanager
def launching(config: RunConfig, what: str, total: int) -> Iterator[Outcomes]:
    """The launcher of a configuration, started, with progress for `total` runs; it shuts down
    cleanly if interrupted. what: the word for the runs."""
    names: dict[str, str] = {}
    with (
        graceful_interrupts(),
        config.launcher.start(config["jobs"], config.results / LAUNCHED) as attempts,
        counting(what, total, running_steps(config.results, names)) as count,
    ):

        def outcomes(runs: Sequence[RunConfig | Failure]) -> Iterator[tuple[int, Outcome]]:
            configs = [run for run in runs if isinstance(run, RunConfig)]
            short = short_names([run.overrides for run in configs])
            names.update(zip((run.digest for run in configs), short, strict=True))
            for ended in attempt_all(attempts, runs):
                yield ended
                count()

        yield outcomes


def report(sweep: Sweep, failed: Mapping[Path, Failure]) -> str:
    """The failures as lines to print, or ""; also written to `results/failures/NAME.txt`, which is
    removed if nothing failed. UserError if all runs failed for the same reason: then the request or
    the machine is at fault."""
    failures = [(sweep.runs[path], failure) for path, failure in failed.items()]
    reasons = {failure.reason for failure in failed.values()}
    if len(failed) == len(sweep.runs) and len(reasons) == 1:
        _write(sweep, failures)
        raise UserError(reasons.pop())
    failures += [(run, Failure(str(reason))) for run, reason in sweep.impossible]
    saved = _write(sweep, failures)
    if not failures:
        return ""
    total = len(sweep.runs) + len(sweep.impossible)
    retry = "; rerun the same command to retry" if failed else ""
    lines = [f"{len(failures)} of {total} runs failed{saved}{retry}:"]
    lines += [f"  {shlex.join(run.overrides)}: {failure.reason}" for run, failure in failures]
    return "\n".join(lines)


def summary(sweep: Sweep) -> str:
    """Remarks on finished runs that diverged, had non-finite gradients, or are by other code than
    the present one, as lines, or ""."""
    loaded = ((shlex.join(run.overrides), load(path)) for path, run in sweep.runs.items())
    finished = [(name, record) for name, record in loaded if record]
    said = divergence.summary(finished), stale_among([record for _, record in finished])
    return "\n".join(filter(None, said))


def _write(sweep: Sweep, failures: list[tuple[RunConfig, Failure]]) -> str:
    """List the failures in a file; returns words that name the file, or "" without a file."""
    path = sweep.folder / FAILURES / f"{sweep.name}.txt"
    if not failures:
        remove_parts(path.parent, path.name)
        with suppress(OSError):  # the folder has files of other sweeps, or does not exist
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        return ""
    entries = [
        f"dpbench run {shlex.join(run.overrides)}\n{failure.reason}\n{failure.trace}"
        for run, failure in failures
    ]
    try:
        write_atomically(path, "\n".join(entries).encode())
    except UserError:  # a full disk may be why the runs failed
        return ""
    return f" (listed in {path})"
