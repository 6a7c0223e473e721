"""Ranges that go on beyond the end at which the best trial lies."""

import math
from collections.abc import Sequence
from dataclasses import replace

from dpbench.comparison.search.request import PIECE, SearchRequest
from dpbench.comparison.search.selection import RULES, Trial, ranked
from dpbench.runs.config.space import Interval, Space
from dpbench.runs.config.table_rules import outer_end
from dpbench.runs.execution.launcher import Failure
from dpbench.runs.execution.prepare import run_of
from dpbench.system.errors import UserError

MOST = 8
"""The most pieces that a search adds."""


def beyond(
    request: SearchRequest, space: Space, trials: Sequence[Trial]
) -> tuple[Space, Space] | None:
    """The space with a piece added to the first range in whose outer tenth the best trial lies, and
    the part of it that is new; None where it lies in none, or settings beyond are refused."""
    for best in ranked(trials, RULES[request.rule])[:1]:
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


def _piece(range_: Interval, end: str) -> Interval:
    """What is added beyond an end, `lower` or `upper`."""
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
