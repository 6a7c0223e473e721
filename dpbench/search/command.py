"""`dpbench search [KEY=RANGE ...]`: trials on a validation split, and the one to choose."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from dpbench.errors import UserError
from dpbench.progress import counting
from dpbench.reproduce import _end_with
from dpbench.results import Record, check_writable, load, write_whole
from dpbench.runs import once
from dpbench.search.report import render
from dpbench.search.request import Request, parse
from dpbench.search.samplers import SAMPLERS
from dpbench.search.selection import RULES, Trial, check_any
from dpbench.search.space import Configuration

Attempts = Callable[[list[list[str]]], Iterable[Path | str]]


def search(arguments: list[str]) -> str:
    """Run what is missing, write `results/search/NAME.*`, and return the trials as Markdown."""
    asked = parse(arguments)
    folder = Path(asked.config["results_dir"]) / "search"
    check_writable(folder)
    trials = run_trials(asked)
    check_any(trials)
    files = render(asked, trials)
    for suffix, text in files.items():
        write_whole(folder / f"{asked.name}.{suffix}", text.encode())
    return files["md"]


def run_trials(asked: Request) -> list[Trial]:
    """All trials in their order; runs that have a record are not run again."""
    propose, scores = SAMPLERS[asked.by], RULES[asked.rule].scores
    history: dict[Configuration, tuple[float, ...] | None] = {}
    trials: list[Trial] = []
    total = asked.count * len(asked.seeds)
    with _workers(asked.config["jobs"]) as attempts, counting("runs", total) as count:
        while batch := propose(asked.space, asked.count, asked.draw, history):
            for configuration, trial in zip(
                batch, _try_all(asked, batch, len(trials), attempts, count), strict=True
            ):
                history[configuration] = None if trial.failures else scores(trial)
                trials.append(trial)
    return trials


def attempt(overrides: list[str]) -> Path | str:
    """The path of a run's record, or the reason why there is none."""
    try:
        return once(overrides, quiet=True)
    except UserError as error:
        return str(error)
    except Exception as error:  # whatever a trial dies of, the others go on
        (line, *_) = [*str(error).splitlines(), ""]
        return f"{type(error).__name__}: {line}"


def _try_all(
    asked: Request,
    batch: list[Configuration],
    before: int,
    attempts: Attempts,
    count: Callable[[], None],
) -> Iterator[Trial]:
    """The trials of a round, numbered on from those before."""
    drawn = [asked.space.overrides(configuration) for configuration in batch]
    results = iter(attempts([run for overrides in drawn for run in asked.runs(overrides)]))
    for number, overrides in enumerate(drawn, before + 1):
        outcomes: dict[str, Record | str] = {}
        for seed in asked.seeds:
            outcomes[seed] = _outcome(next(results))
            count()
        yield Trial(number, tuple(overrides), outcomes)


def _outcome(result: Path | str) -> Record | str:
    if isinstance(result, str):
        return result
    return load(result) or f"{result.name} is gone or broken"


@contextmanager
def _workers(jobs: int) -> Iterator[Attempts]:
    """A function that attempts runs: in this process, or in several, each with one thread."""
    if jobs == 1:
        yield lambda runs: map(attempt, runs)
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _end_with, (os.getpid(),))
    try:
        yield lambda runs: pool.map(attempt, [["threads=1", *overrides] for overrides in runs])
    except BrokenProcessPool as error:
        raise UserError(
            "a process of the search was killed, most likely for want of memory; lower jobs and "
            "give the same command again: it goes on where it was."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
