"""Makes the privacy statement of a run from its ledger and its method."""

import math
from collections.abc import Iterable, Mapping

from dpbench.privacy.accountants import SPENT, claimed, noise_is_too_small
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT
from dpbench.privacy.ledger import Ledger, Shuffled, to_plain
from dpbench.privacy.statement import (
    UPPER_BOUNDS,
    Arithmetic,
    Epsilons,
    Statement,
    alike,
    smaller_bound,
)
from dpbench.step.mechanism.method import Method

NOISE_ENDS = (
    "Noise in floating point ends, and this one ends where it would have to hide an example: no "
    "epsilon holds at this delta."
)

WHOLE_USERS = (
    "What it protects is a user with all of its examples; which examples are whose is taken as "
    "given."
)

EMPTY_PLACE = "A removed example leaves its place empty."

ARITHMETIC: dict[str, Arithmetic] = {"seeded": "float", "secure": "secure"}
"""The arithmetic for which an epsilon holds, by the source of noise. Older records without this
term have noise from float32 uniforms, and their epsilon holds for "real" numbers only."""


def statement(
    ledger: Ledger,
    method: Method,
    delta: float,
    noise_multiplier: float,
    noise: str = "seeded",
    paper_accountant: str = DEFAULT_PAPER_ACCOUNTANT,
    zero_out: bool = False,
    notes: Iterable[str] = (),
    covered: Mapping[str, str] | None = None,
) -> Statement:
    """The privacy statement of a ledger, whose fields docs/records.md has.

    `claimed` is the epsilon by the paper's reasoning, valid or not, by the accountant of the
    method's paper, if that has its own, and else by `paper_accountant`. zero_out: whether a removed
    unit leaves its place empty. notes: what the run reads from the data without accounting.
    covered: how it comes by facts of the data, see `Fact`. Raises Unaccountable if no accountant
    has a bound.
    """
    law = ledger.entries[0][0].sampling if ledger.entries else None
    accountant = method.own_accountant or paper_accountant
    guarantee = method.guarantee.under(law) if method.private and law else method.guarantee
    unit = law.unit if law else "example"
    reasons = [guarantee.why]
    if not method.private:
        epsilons = alike(math.inf, math.inf)
    else:
        of_paper = None if isinstance(law, Shuffled) else claimed(ledger, delta, accountant)
        if guarantee.level == "none":
            epsilons = alike(None, of_paper)
        elif noise_is_too_small(ledger, delta):
            epsilons = alike(math.inf, of_paper)
            reasons.append(NOISE_ENDS)
        else:
            epsilons = _bounds(ledger, delta, of_paper)
    if unit != "example":
        reasons.append(WHOLE_USERS)
    if zero_out and method.private:
        reasons.append(EMPTY_PLACE)
    return {
        **epsilons,
        "claimed_by": accountant,
        "smaller_bound": smaller_bound(epsilons),
        "delta": delta,
        "arithmetic": ARITHMETIC[noise] if method.private else None,
        "noise_multiplier": noise_multiplier,
        "sample_rate": None if isinstance(law, Shuffled | None) else law.rate,
        "steps": ledger.steps,
        "guarantee": guarantee.level,
        "why": " ".join(reasons),
        "unit": unit,
        "adjacency": f"{'zero out' if zero_out else 'add or remove'} one {unit}",
        "ledger": to_plain(ledger),
        "notes": [*notes],
        "covered": {**(covered or {})},
    }


def _bounds(ledger: Ledger, delta: float, of_paper: float | None) -> Epsilons:
    """The upper bounds by accountant, and under `refused` why an accountant has none; and the
    approximation, if there is one. of_paper: the epsilon as the paper computes it. Raises
    Unaccountable if no accountant has a bound."""
    epsilons = alike(None, of_paper)
    for name, accountant in SPENT.items():
        try:
            epsilons[name] = accountant(ledger, delta)
        except Unaccountable as error:
            # The approximation may fail where the bounds do not.
            if name in UPPER_BOUNDS:
                epsilons["refused"][name] = str(error)
    if len(refused := epsilons["refused"]) == len(UPPER_BOUNDS):
        raise Unaccountable(" ".join(dict.fromkeys(refused.values())))
    return epsilons
