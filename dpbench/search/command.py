"""`dpbench search [KEY=RANGE ...]`: trials on a validation split, and the one to choose."""

from collections.abc import Callable, Iterator
from pathlib import Path

from dpbench.config.space import Configuration
from dpbench.execution.attempt import attempt_all
from dpbench.execution.launcher import Attempts, Failure, Outcome
from dpbench.execution.sweep import launched
from dpbench.files import check_writable, write_atomically
from dpbench.records.reading import load
from dpbench.records.record import Record
from dpbench.search.report import render
from dpbench.search.request import SearchRequest, parse
from dpbench.search.samplers import SAMPLERS
from dpbench.search.selection import RULES, Trial, check_any
from dpbench.training.progress import counting


def search(arguments: list[str]) -> str:
    """Run what is missing, write `results/search/NAME.*`, and return the trials as Markdown."""
    asked = parse(arguments)
    folder = Path(asked.config["results_dir"]) / "search"
    check_writable(folder)
    trials = run_trials(asked)
    check_any(trials)
    files = render(asked, trials)
    for suffix, text in files.items():
        write_atomically(folder / f"{asked.name}.{suffix}", text.encode())
    return files["md"]


def run_trials(asked: SearchRequest) -> list[Trial]:
    """All trials in their order; runs that have a record are not run again."""
    propose, scores = SAMPLERS[asked.by], RULES[asked.rule].scores
    history: dict[Configuration, tuple[float, ...] | None] = {}
    trials: list[Trial] = []
    total = asked.count * len(asked.seeds)
    with launched(asked.config) as attempts, counting("runs", total) as count:
        while batch := propose(asked.space, asked.count, asked.draw, history):
            for configuration, trial in zip(
                batch, _try_all(asked, batch, len(trials), attempts, count), strict=True
            ):
                history[configuration] = None if trial.failures else scores(trial)
                trials.append(trial)
    return trials


def _try_all(
    asked: SearchRequest,
    batch: list[Configuration],
    before: int,
    attempts: Attempts,
    count: Callable[[], None],
) -> Iterator[Trial]:
    """The trials of a round, numbered on from those before."""
    drawn = [asked.space.overrides(configuration) for configuration in batch]
    outcomes: dict[int, Record | str] = {}
    for place, outcome in attempt_all(attempts, [run for one in drawn for run in asked.runs(one)]):
        outcomes[place] = _outcome(outcome)
        count()
    results = (outcomes[place] for place in sorted(outcomes))
    for number, overrides in enumerate(drawn, before + 1):
        yield Trial(number, tuple(overrides), {seed: next(results) for seed in asked.seeds})


def _outcome(outcome: Outcome) -> Record | str:
    if isinstance(outcome, Failure):
        return outcome.reason
    return load(outcome) or f"{outcome.name} is gone or broken"
