"""`dpbench search [KEY=RANGE ...]`: trials on a validation split, and the choice of the best."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from dpbench.comparison.search.private import how_to_publish, released_files, select
from dpbench.comparison.search.report import Searched, page_of_several, render
from dpbench.comparison.search.request import PIECE, SearchRequest, repeated
from dpbench.comparison.search.samplers import SAMPLERS
from dpbench.comparison.search.selection import Trial, check_any, failures_of, ranked
from dpbench.comparison.search.start import NUMBER
from dpbench.runs.config.space import Configuration, Interval, Space
from dpbench.runs.config.table_rules import outer_end
from dpbench.runs.execution.attempt import record_of
from dpbench.runs.execution.launcher import Failure
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.sweep import Outcomes, launching
from dpbench.runs.records.code import stale_among
from dpbench.runs.records.folder import SEARCH
from dpbench.system.errors import UserError, print_message
from dpbench.system.files import check_writable, write_atomically

MOST = 8
"""The most pieces that a search adds."""


def beyond(
    request: SearchRequest, space: Space, trials: Sequence[Trial]
) -> tuple[Space, Space] | None:
    """The space with a piece added to the first range in whose outer tenth the best trial or the
    best finalist lies, and the part of it that is new; None where they lie in none, or settings
    beyond are refused."""
    for best in _leading(request, trials):
        for place, range_ in enumerate(space.ranges):
            if not isinstance(range_, Interval):
                continue
            values = [float(trial.values[range_.key]) for trial in (best, *trials)]
            end = outer_end(values, request.special.get(range_.key))
            piece = _allowed_piece(request, best, range_, end) if end else None
            if piece is None:
                continue
            low, high = min(range_.low, piece.low), max(range_.high, piece.high)
            before, after = space.ranges[:place], space.ranges[place + 1 :]
            wider = replace(range_, low=low, high=high)
            return Space((*before, wider, *after)), Space((*before, piece, *after))
    return None


def _leading(request: SearchRequest, trials: Sequence[Trial]) -> Iterator[Trial]:
    yield from ranked(trials, request.rule)[:1]
    if request.options.finalists:
        yield from ranked(run_finals(request, trials), request.rule)[:1]


def _piece(range_: Interval, end: str) -> Interval:
    low, high = range_.low, range_.high
    if range_.log:
        factor = (high / low) ** PIECE
        ends = (low / factor, low) if end == "lower" else (high, high * factor)
    else:
        width = PIECE * (high - low)
        ends = (low - width, low) if end == "lower" else (high, high + width)
    if range_.integer:
        ends = (math.floor(ends[0]), math.ceil(ends[1]))
    return replace(range_, low=ends[0], high=ends[1])


def _allowed_piece(
    request: SearchRequest, best: Trial, range_: Interval, end: str
) -> Interval | None:
    """What is added beyond an end; None if the best trial's settings are refused with its outermost
    value."""
    try:
        piece = _piece(range_, end)
        outermost = piece.low if end == "lower" else piece.high
        for run in request.runs({**best.values, piece.key: piece.write(outermost)}):
            if isinstance(run, Failure):
                return None
            run_of(run)
    except UserError:
        return None
    return piece


def search(arguments: list[str], on_failures: Callable[[str], None] = lambda text: None) -> str:
    """Run the missing trials, write `results/search/NAME.*`, and return the report as Markdown.

    on_failures: called with a sentence if runs have no record.
    """
    requests = repeated(arguments)
    folder = requests[0].config.results / SEARCH
    check_writable(folder)
    if requests[0].repetitions:  # only the best trial is released
        selected = select(requests[0])
        return _write(requests[0], released_files(selected)) + how_to_publish(selected)
    made = [run_search(request, on_failures) for request in requests]
    if stale := stale_among([record for one in made for record in one.records]):
        print_message(stale)
    if len(made) == 1:
        return made[0].text
    text = page_of_several(made).markdown
    write_atomically(folder / f"{requests[0].repeated}.md", text.encode())
    return text


def run_search(request: SearchRequest, on_failures: Callable[[str], None]) -> Searched:
    """One search that is not private, its files written."""
    trials = run_trials(request)
    check_any(trials)
    finals = run_finals(request, trials) if request.options.finalists else []
    text = _write(request, render(request, trials, finals))
    if failures := failures_of([*trials, *finals]):
        on_failures(failures)
    return Searched(request, trials, finals, text)


def _write(request: SearchRequest, files: Mapping[str, bytes]) -> str:
    for suffix, content in files.items():
        write_atomically(request.config.results / SEARCH / f"{request.name}.{suffix}", content)
    return files["md"].decode()


def run_trials(request: SearchRequest) -> list[Trial]:
    """All trials in their order, the start first; runs that have a record are not repeated."""
    propose, scores = SAMPLERS[request.options.by], request.rule.scores
    history: dict[Configuration, tuple[float, ...] | None] = {}
    trials: list[Trial] = []
    start = [request.start.values] if request.start else []
    total = (request.count + len(start)) * len(request.seeds)
    with launching(request.config, "runs", total) as outcomes:
        if start:
            trials += _run_batch(request, start, NUMBER - 1, outcomes)
        while batch := propose(request.space, request.count, request.options.draw, history):
            values = [request.space.values(configuration) for configuration in batch]
            for configuration, trial in zip(
                batch, _run_batch(request, values, len(history), outcomes), strict=True
            ):
                history[configuration] = None if trial.failures else scores(trial)
                trials.append(trial)
    return _extended(request, trials) if request.extend else trials


def _extended(request: SearchRequest, trials: Sequence[Trial]) -> list[Trial]:
    extended, space = list(trials), request.space
    for _ in range(MOST):
        if (found := beyond(request, space, extended)) is None:
            break
        space, added = found
        last = extended[-1].number  # that of the start counts for none
        drawn = map(added.values, added.random(request.extend, request.options.draw, start=last))
        tried = [trial.values for trial in extended]  # a piece of whole numbers has the old end
        values = [each for each in drawn if each not in tried]
        with launching(request.config, "added runs", len(values) * len(request.seeds)) as outcomes:
            extended += _run_batch(request, values, last, outcomes)
    return extended


def run_finals(request: SearchRequest, trials: Sequence[Trial]) -> list[Trial]:
    """The best trials again, with the final seeds and the numbers that they had."""
    best = ranked(trials, request.rule)[: request.options.finalists]
    values = [trial.values for trial in best]
    final = replace(request, seeds=request.final_seeds)
    with launching(request.config, "final runs", len(best) * len(final.seeds)) as found:
        again = list(_run_batch(final, values, 0, found))
    return [replace(run, number=first.number) for run, first in zip(again, best, strict=True)]


def _run_batch(
    request: SearchRequest, trials: Sequence[Mapping[str, str]], previous: int, outcomes: Outcomes
) -> Iterator[Trial]:
    """The trials of several values by key. previous: the number of trials before them."""
    runs = [run for values in trials for run in request.runs(values)]
    found = {index: record_of(outcome) for index, outcome in outcomes(runs)}
    results = (found[index] for index in sorted(found))
    for number, values in enumerate(trials, previous + 1):
        yield Trial(number, values, {seed: next(results) for seed in request.seeds})
