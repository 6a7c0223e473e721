"""The trials of a private search before any of them runs: their ledgers, and the epsilon of all."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpbench.config.space import Configuration
from dpbench.data.derive.validation import WithValidation
from dpbench.errors import UserError
from dpbench.execution.prepare import prepare
from dpbench.privacy.guarantee import BOUNDS, CLAIMED
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.selection import selection_epsilon
from dpbench.search.request import SearchRequest
from dpbench.training.plan import Plan
from dpbench.training.run import Run
from dpbench.training.statement import NOISE_ENDS

TOLERANCE = 1.002
"""The ratio of the ends of a bracket of a trial's epsilon at which the bisection ends."""

SMALLEST_SHARE = 1e-3
"""The smallest share of the epsilon of a search that a trial may have."""


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
    planned = (
        _plan(request, candidates)
        if request.epsilon is None
        else _calibrated(request, candidates, request.epsilon)
    )
    if planned.search_epsilon == math.inf:
        raise UserError(f"private=true: {NOISE_ENDS}")
    return planned


def _calibrated(
    request: SearchRequest, candidates: tuple[Configuration, ...], target: float
) -> PlannedTrials:
    """The plans at the largest epsilon of a trial, to 0.2%, that keeps the search to the target.

    The bisection is by the candidate that costs most at the target, for speed; the others are only
    planned at the end.
    """
    assert request.repetitions
    laws = request.repetitions
    try:
        planned = _plan(request.with_trial_epsilon(target), candidates)
    except UserError as reason:
        raise UserError(
            f"epsilon={target:g} cannot be that of the whole search: {reason}"
        ) from None
    costs = [selection_epsilon([each], laws, planned.delta)[1] for each in planned.ledgers]
    costliest = candidates[int(np.argmax(costs))]
    # A search costs more than each of its trials.
    low, high, met = SMALLEST_SHARE * target, target, False
    while high / low > TOLERANCE:
        middle = math.sqrt(low * high)
        try:
            plan = _plan(request.with_trial_epsilon(middle), (costliest,))
        except UserError:  # the noisy score alone costs more than this
            low = middle
            continue
        within = plan.search_epsilon <= target
        low, high, met = (middle, high, True) if within else (low, middle, met)
    while met:
        planned = _plan(request.with_trial_epsilon(_rounded_down(low)), candidates)
        if planned.search_epsilon <= target:
            return planned
        low /= TOLERANCE
    raise UserError(
        f"epsilon={target:g} cannot be that of the whole search: the noisy scores alone cost too "
        "much of it; raise epsilon or score_noise_multiplier."
    )


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
