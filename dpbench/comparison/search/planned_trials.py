"""The trials of a private search before any of them runs: their ledgers, and the epsilon of all."""

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from dpbench.comparison.search.request import SearchRequest
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.privacy.guarantee import BOUNDS, VOUCHED
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.private_selection import SelectionEpsilons, selection_costs
from dpbench.runs.config.space import Configuration, override_texts
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.training.accounting import NOISE_ENDS
from dpbench.runs.training.plan import Plan
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError

CLOSE, ATTEMPTS = 3e-3, 4
"""How far below its target the epsilon of a search may stay, as a logarithm; and the attempts after
which it may stay further below."""

SMALLEST_SHARE = 1e-3
"""The smallest share of the epsilon of a search that a trial may have."""


@dataclass(frozen=True)
class PlannedTrials:
    """The request, with the epsilon of a calibrated trial; its candidates, with a ledger for each.

    trial, search: the cost of one trial, its score included, and of the search. vouched: sentences
    on guarantees that only a plug-in's author vouches for. notes: on the data, such as which of its
    statistics no epsilon covers.
    """

    request: SearchRequest
    candidates: tuple[Configuration, ...]
    ledgers: tuple[Ledger, ...]
    trial: SelectionEpsilons
    search: SelectionEpsilons
    delta: float
    vouched: tuple[str, ...]
    notes: tuple[str, ...]


def plan_trials(request: SearchRequest) -> PlannedTrials:
    """The plans of all candidates.

    Raises UserError for an invalid candidate, and for a target that no noise can meet.
    """
    candidates = tuple(request.space.random(request.count, request.options.draw))
    target = request.options.epsilon
    plan = _calibrated(request, candidates, target) if target else _plan(request, candidates)
    if plan.search.epsilon == math.inf:
        raise UserError(f"private=true: {NOISE_ENDS}")
    return plan


def _calibrated(
    request: SearchRequest, candidates: tuple[Configuration, ...], target: float
) -> PlannedTrials:
    """The plans at an epsilon of each trial that keeps the search to the target, and within 0.3% of
    it if a few attempts suffice.

    The candidate that costs most at the target is brought to the target first, for speed; all of
    them together cost at most as much.
    """
    try:
        planned = _plan(request.with_trial_epsilon(target), candidates)
    except UserError as reason:
        raise UserError(
            f"epsilon={target:g} cannot be that of the whole search: {reason}"
        ) from None
    log = _calibrated_alone(request, _costliest(planned), target)
    for attempt in itertools.count(1):
        try:
            planned = _plan(request.with_trial_epsilon(_rounded_down(math.exp(log))), candidates)
        except UserError:
            raise UserError(
                f"epsilon={target:g} cannot be that of the whole search: the noisy scores alone "
                "cost too much of it; raise epsilon or score_noise_multiplier."
            ) from None
        spare = math.log(target / planned.search.epsilon)
        if spare >= 0 and (spare <= CLOSE or attempt >= ATTEMPTS):
            break
        log += spare - CLOSE / 2
    return planned


def _costliest(planned: PlannedTrials) -> Configuration:
    laws = planned.request.repetitions
    assert laws
    costs = [selection_costs([each], laws, planned.delta)[1].epsilon for each in planned.ledgers]
    return planned.candidates[int(np.argmax(costs))]


def _calibrated_alone(request: SearchRequest, candidate: Configuration, target: float) -> float:
    """The logarithm of a trial's epsilon at which a search of one candidate costs the target, or
    the least one that the noisy score leaves."""

    @functools.cache
    def excess(log: float) -> float:
        try:
            plan = _plan(request.with_trial_epsilon(math.exp(log)), (candidate,))
        except UserError:  # the noisy score alone costs more than this
            return -1.0
        return math.log(plan.search.epsilon / target)

    low, high = math.log(SMALLEST_SHARE * target), math.log(target)
    # By profiles, a search may cost less than one of its trials by divergences.
    while excess(high) <= 0:
        low, high = high, high + math.log(2)
    return brentq(excess, low, high, xtol=CLOSE / 2)


def _rounded_down(epsilon: float) -> float:
    """To four significant digits, for a command that can be read."""
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return float(f"{math.floor(epsilon / unit) * unit:.4g}")


def _plan(request: SearchRequest, candidates: tuple[Configuration, ...]) -> PlannedTrials:
    assert request.repetitions
    ledgers, deltas, vouched = [], set(), set()
    notes: dict[str, None] = {}
    for candidate in candidates:
        try:
            run, planned = prepare(request.trial_run(candidate, "planned"))
            _check(run, planned)
        except UserError as reason:
            settings = " ".join(override_texts(request.space.values(candidate)))
            raise UserError(f"private=true: candidate {settings} is refused: {reason}") from None
        ledgers.append(planned.ledger)
        deltas.add(run.privacy.delta)
        if (guarantee := planned.method.guarantee).level == VOUCHED:
            vouched.add(f"{planned.method.name}: {guarantee.why}")
        notes |= dict.fromkeys(_notes_on_data(run))
    if len(deltas) > 1:
        raise UserError("private=true takes one privacy.delta for all candidates.")
    delta = deltas.pop()
    trial, search = selection_costs(ledgers, request.repetitions, delta)
    texts = tuple(sorted(vouched)), tuple(notes)
    return PlannedTrials(request, candidates, tuple(ledgers), trial, search, delta, *texts)


def _notes_on_data(run: Run) -> Iterator[str]:
    assert isinstance(run.dataset, WithValidation)
    yield from run.dataset.base.notes
    if run.normalization:
        yield run.normalization.note


def _check(run: Run, planned: Plan) -> None:
    if run.score_noise_multiplier is None:
        raise UserError("it releases no noisy score.")
    if planned.method.guarantee.level not in BOUNDS:
        raise UserError(f"{planned.method.name}: {planned.method.guarantee.why}")
