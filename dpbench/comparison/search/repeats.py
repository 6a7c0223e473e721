"""Several independent searches of one space: what each chose, and what luck is worth."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dpbench.comparison.search.report import (
    OF_FEWER,
    best_of_fewer,
    fewer_trials,
    scored,
)
from dpbench.comparison.search.request import SearchRequest
from dpbench.comparison.search.selection import ECE, LOSS, RULES, Trial, ranked
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.page import Block, Page
from dpbench.learning.metrics.paired_t import paired_test
from dpbench.runs.config.settings import NAMED_GROUPS


class Searched(NamedTuple):
    """A search that was made: its trials, the best of them again with their final seeds, if that
    was asked for, and its page."""

    request: SearchRequest
    trials: Sequence[Trial]
    finals: Sequence[Trial]
    text: str

    @property
    def chosen(self) -> list[Trial]:
        return ranked(self.finals or self.trials, RULES[self.request.rule])[:1]


def page(searches: Sequence[Searched]) -> Page:
    """The page of at least two searches."""
    request = searches[0].request
    choices, keys = request.config["choices"], [range_.key for range_ in request.space.ranges]
    title = ", ".join(choices[group] for group in NAMED_GROUPS if group not in keys)
    values = [100 * trial.mean(scored(request)) for one in searches for trial in one.chosen]
    blocks: list[Block] = [
        f"{len(searches)} independent searches, each with other draws, other seeds and so other "
        "validation splits. A table whose `searches` is as many takes the choices of all.",
        _choices(searches, keys),
        *([_chance(values)] if len(values) > 1 and all(map(math.isfinite, values)) else []),
        *_fewer(searches),
    ]
    return Page(f"Searches: {title}", blocks)


def _choices(searches: Sequence[Searched], keys: Sequence[str]) -> Grid:
    rows = [
        (one.request.name, *_line(trial, scored(one.request)))
        for one in searches
        for trial in one.chosen
    ]
    head = ("search", "trial", *keys, f"{scored(searches[0].request)} (%)", LOSS, ECE)
    return Grid("What each chose", head, tuple(rows))


def _line(trial: Trial, score: str) -> tuple[str, ...]:
    numbers = ((100, 2, score), (1, 4, LOSS), (100, 2, ECE))
    texts = [f"{scale * trial.mean(name):.{digits}f}" for scale, digits, name in numbers]
    shown = (text.replace("nan", NO_VALUE) for text in texts)
    return (str(trial.number), *trial.values.values(), *shown)


def _chance(values: Sequence[float]) -> str:
    test = paired_test(values, 0.0)
    low, high = test.interval()
    return (
        f"The chosen settings score {test.mean:.2f} on average, with a standard deviation of "
        f"{test.deviation:.2f} between the {test.n} searches (95% interval of "
        f"the mean {low:.2f} to {high:.2f})."
    )


def _fewer(searches: Sequence[Searched]) -> list[Block]:
    """What fewer trials would have found, with an interval over the searches."""
    curves = [best_of_fewer(one.request, one.trials) for one in searches]
    shared = [count for count in curves[0] if all(count in curve for curve in curves)]
    cells = []
    for count in shared:
        test = paired_test([curve[count] for curve in curves], 0.0)
        low, high = test.interval()
        cells.append((str(count), f"{test.mean:.2f} [{low:.2f}, {high:.2f}]"))
    if not cells:
        return []
    return [
        fewer_trials(searches[0].request, cells),
        f"{OF_FEWER}, averaged over the searches, with its 95% interval by Student's t.",
    ]
