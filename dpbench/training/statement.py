"""The privacy statement of a run: its epsilons, and what they hold for."""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dpbench.mechanism.method import Method
from dpbench.privacy.accountants import ACCOUNTANTS, claimed, gdp, noise_is_too_small
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.guarantee import DEFAULT_CLAIM
from dpbench.privacy.ledger import (
    Ledger,
    Shuffled,
    to_plain,
)

NOISE_ENDS = (
    "Noise in floating point ends, and this one ends where it would have to hide an example: no "
    "epsilon holds at this delta."
)

WHOLE_USERS = (
    "What it protects is a user with all of its examples; which examples are whose is taken as "
    "given."
)

EMPTY_PLACE = "A removed example leaves its place empty."

ARITHMETIC = {"seeded": "float", "secure": "secure"}
"""The arithmetic for which an epsilon holds, by the source of noise. Older records without this
field have noise from float32 uniforms, and their epsilon holds for "real" numbers only.

- "real": for real numbers; floating-point outputs may reveal more about an example.
- "float": for the floating-point outputs, against anyone who does not know the seed: noise is drawn
  and added in float64 and rounded to a grid.
- "secure": the same, with noise from a key that was not stored.
"""


def statement(
    ledger: Ledger,
    method: Method,
    delta: float,
    noise_multiplier: float,
    noise: str = "seeded",
    paper_accountant: str = DEFAULT_CLAIM,
    zero_out: bool = False,
) -> dict:
    """The privacy statement of a ledger, as a plain dictionary for records and users.

    `rdp` and `pld` are upper bounds and `gdp` an approximation; all are None if the method has no
    guarantee, and infinite if it is not private. A bound is None if its accountant has none, and
    `refused` then says why. `claimed` is the epsilon by the paper's reasoning, valid or not: each
    release on a separate batch, by the accountant of the method's paper, if that has its own, and
    else by `paper_accountant`, that of the table's paper. `arithmetic`: see ARITHMETIC. zero_out:
    whether a removed unit leaves its place empty.
    """
    sampling = ledger.entries[0][0].sampling if ledger.entries else None
    accountant = method.own_accountant or paper_accountant
    guarantee = (
        method.guarantee.under(sampling) if method.private and sampling else method.guarantee
    )
    unit = sampling.unit if sampling else "example"
    numbers = ("rdp", "pld", "gdp", "claimed")
    epsilons: dict[str, Any] = dict.fromkeys(numbers) | {"refused": {}}
    if not method.private:
        epsilons |= dict.fromkeys(numbers, math.inf)
    elif not isinstance(sampling, Shuffled):
        epsilons["claimed"] = claimed(ledger, delta, accountant)
        if guarantee.level != "none" and noise_is_too_small(ledger, delta):
            epsilons |= dict.fromkeys(("rdp", "pld", "gdp"), math.inf)
            guarantee = replace(guarantee, why=f"{guarantee.why} {NOISE_ENDS}")
        elif guarantee.level != "none":
            epsilons |= _bounds(ledger, delta)
            # The approximation may fail where the bounds do not.
            with suppress(Unaccountable):
                epsilons["gdp"] = gdp(ledger, delta)
    of_users, of_places = unit != "example", zero_out and method.private
    why = (guarantee.why, WHOLE_USERS if of_users else "", EMPTY_PLACE if of_places else "")
    return epsilons | {
        "claimed_by": accountant,
        "delta": delta,
        "arithmetic": ARITHMETIC[noise] if method.private else None,
        "noise_multiplier": noise_multiplier,
        "sample_rate": None if isinstance(sampling, Shuffled | None) else sampling.rate,
        "steps": ledger.steps,
        "guarantee": guarantee.level,
        "why": " ".join(filter(None, why)),
        "unit": unit,
        "adjacency": f"{'zero out' if zero_out else 'add or remove'} one {unit}",
        "ledger": to_plain(ledger),
    }


def _bounds(ledger: Ledger, delta: float) -> dict:
    """The upper bounds by accountant, and under `refused` why an accountant has none.

    Raises Unaccountable if no accountant has a bound.
    """
    refused: dict[str, str] = {}
    bounds: dict[str, float | None] = {}
    for name in ("rdp", "pld"):
        try:
            bounds[name] = ACCOUNTANTS[name](ledger, delta)
        except Unaccountable as error:
            bounds[name], refused[name] = None, str(error)
    if len(refused) == len(bounds):
        raise Unaccountable(" ".join(dict.fromkeys(refused.values())))
    return bounds | {"refused": refused}
