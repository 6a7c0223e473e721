"""The trials of a private search before any of them runs: their ledgers, and the epsilon of all."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dpbench.config.space import Configuration
from dpbench.data.derive.validation import WithValidation
from dpbench.errors import UserError
from dpbench.execution.prepare import prepare
from dpbench.privacy.guarantee import BOUNDS, CLAIMED
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.selection import selection_epsilon
from dpbench.search.request import SearchRequest
from dpbench.training.plan import Plan, Run

TOLERANCE = 1.002
"""The ratio of the ends of a bracket of a trial's epsilon at which the bisection ends."""


@dataclass(frozen=True)
class PlannedTrials:
    """The request, with the epsilon of a trial that was calibrated; its candidates, with a ledger
    for each; and what holds for all of them.

    trial_epsilon: of one trial, its score included; search_epsilon: of the whole search; both by
    RDP. claims: sentences on the guarantees that both rely on and that are only claimed. notes: on
    the data, such as which of its statistics no epsilon covers.
    """

    request: SearchRequest
    candidates: tuple[Configuration, ...]
    ledgers: tuple[Ledger, ...]
    trial_epsilon: float
    search_epsilon: float
    delta: float
    claims: tuple[str, ...]
    notes: tuple[str, ...]


def plan_trials(request: SearchRequest) -> PlannedTrials:
    """The plans of all candidates.

    Raises UserError for an invalid candidate, and for a target that no noise can meet.
    """
    candidates = tuple(request.space.random(request.count, request.draw))
    if request.epsilon is None:
        return _plan(request, candidates)
    try:
        return _calibrated(request, candidates, request.epsilon)
    except UserError as reason:
        raise UserError(
            f"epsilon={request.epsilon:g} cannot be that of the whole search: {reason}"
        ) from None


def _calibrated(
    request: SearchRequest, candidates: tuple[Configuration, ...], target: float
) -> PlannedTrials:
    """The plans at the largest epsilon of a trial, to 0.2%, that keeps the search to the target."""

    def at(epsilon: float, tried: tuple[Configuration, ...]) -> PlannedTrials:
        return _plan(request.with_trial_epsilon(epsilon), tried)

    def within(epsilon: float) -> bool:
        return at(epsilon, different).search_epsilon <= target

    # Candidates of equal ledgers are calibrated alike: one of them stands for all.
    ledgers = at(target, candidates).ledgers
    different = tuple(dict(zip(ledgers, candidates, strict=True)).values())
    # A search costs more than each of its trials.
    low = high = target
    while not within(low):
        low, high = low / 2, low
    while high / low > TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if within(middle) else (low, middle)
    while (planned := at(_rounded_down(low), candidates)).search_epsilon > target:
        low /= TOLERANCE
    return planned


def _rounded_down(epsilon: float) -> float:
    """To four significant digits, for a command that can be read."""
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return float(f"{math.floor(epsilon / unit) * unit:.4g}")


def _plan(request: SearchRequest, candidates: tuple[Configuration, ...]) -> PlannedTrials:
    """The plans of the candidates; UserError for an invalid one."""
    assert request.repetitions
    ledgers, deltas, claims = [], set(), set()
    notes: dict[str, None] = {}
    for candidate in candidates:
        overrides = request.trial_run(candidate, "planned")
        try:
            _, run, planned = prepare(overrides)
            _check(run, planned)
        except UserError as reason:
            settings = " ".join(request.space.overrides(candidate))
            raise UserError(f"private=true: candidate {settings} is refused: {reason}") from None
        ledgers.append(planned.ledger)
        deltas.add(run.privacy.delta)
        if (guarantee := planned.method.guarantee).level == CLAIMED:
            claims.add(f"{planned.method.name}: {guarantee.why}")
        notes |= dict.fromkeys(_notes_on_data(run))
    if len(deltas) > 1:
        raise UserError("private=true takes one privacy.delta for all candidates.")
    delta = deltas.pop()
    single, whole = selection_epsilon(ledgers, request.repetitions, delta)
    return PlannedTrials(
        request=request,
        candidates=candidates,
        ledgers=tuple(ledgers),
        trial_epsilon=single,
        search_epsilon=whole,
        delta=delta,
        claims=tuple(sorted(claims)),
        notes=tuple(notes),
    )


def _notes_on_data(run: Run) -> Iterator[str]:
    """The notes on a trial's data, without the note on its validation split, which is covered."""
    assert isinstance(run.dataset, WithValidation)
    yield from run.dataset.base.notes
    if run.normalization:
        yield run.normalization.note


def _check(run: Run, planned: Plan) -> None:
    if run.score_noise_multiplier is None:
        raise UserError("it releases no noisy score.")
    if planned.method.guarantee.level not in BOUNDS:
        raise UserError(f"{planned.method.name}: {planned.method.guarantee.why}")
