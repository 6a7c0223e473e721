"""Recomputes printed epsilons: each holds, is too small, is loose, or does not follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.papers.claims.registry import SHUFFLED, PrintedEpsilon
from dpbench.privacy.accountants import claimed, gdp, pld_of_reals, rdp_of_reals
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger

HOLDS, TOO_SMALL, LOOSE = "holds", "too small", "loose"
NOT_FOLLOWING, UNKNOWN = "does not follow", "cannot be recounted"

OF_REALS = {"rdp": rdp_of_reals, "pld": pld_of_reals, "gdp": gdp}
"""Accountants by name: what is printed is claimed for noise of real numbers."""

PLD_MARGIN = 1e-3
"""The relative error of our PLD: a claim is too small only if it is below PLD by more than this."""

LOOSE_MARGIN = 0.02
"""A claim is loose if above RDP by more than this share, the tolerance of a search for a budget."""

FOLLOWS = 0.1
"""The share by which a claim may exceed the account that it names, and still follow from it."""


@dataclass(frozen=True)
class Recount:
    """A claim and its epsilon by each accountant; None without a bound or for an incomplete
    setting.

    own: by the accountant that the claim names, as it is used there; unamplified: an upper bound
    for shuffled batches; verdict: one of those above; share: how much too small or loose the claim
    is, relative to the smaller of PLD and RDP; reason: in words, why it does not follow.
    """

    claim: PrintedEpsilon
    rdp: float | None
    pld: float | None
    gdp: float | None
    own: float | None
    unamplified: float | None
    verdict: str
    share: float = 0.0
    reason: str = ""

    @property
    def ruling(self) -> str:
        """The verdict with its percentage, and whether it assumes Poisson samples."""
        by = f" by {100 * self.share:.0f}%" if self.verdict in (TOO_SMALL, LOOSE) else ""
        assumed = self.claim.sampler != "poisson" and self.verdict in (HOLDS, TOO_SMALL, LOOSE)
        return f"{self.verdict}{by}{', if Poisson' if assumed else ''}"


def recount(claims: Sequence[PrintedEpsilon], count: Callable[[], None]) -> list[Recount]:
    """Each claim by all accountants; `count` is called after each."""
    recounts = []
    for claim in claims:
        recounts.append(recount_one(claim))
        count()
    return recounts


def recount_one(claim: PrintedEpsilon) -> Recount:
    """One claim by all accountants."""
    if not claim.is_complete:
        return Recount(claim, None, None, None, None, None, UNKNOWN, reason=_unprinted(claim))
    ledger, delta = claim.ledger, claim.delta
    spent = {name: _spent(account, ledger, delta) for name, account in OF_REALS.items()}
    spent |= {
        "own": claimed(ledger, delta, claim.accountant) if claim.accountant else None,
        "unamplified": _spent(pld_of_reals, claim.unamplified, delta)
        if claim.sampler == SHUFFLED
        else None,
    }
    bounds = [e for e in (spent["rdp"], spent["pld"]) if e is not None]
    return Recount(claim=claim, **{**spent, **judge(claim, bounds, spent["own"])})


def judge(claim: PrintedEpsilon, bounds: Sequence[float], own: float | None) -> dict[str, Any]:
    """The verdict on a printed epsilon with its share and reason. bounds: valid epsilons."""
    if claim.flaw:
        return {"verdict": NOT_FOLLOWING, "reason": claim.flaw}
    if not bounds:
        return {"verdict": UNKNOWN, "reason": "No accountant has a bound."}
    least, most = min(bounds), max(bounds)
    highest, lowest = claim.epsilon + claim.rounding, claim.epsilon - claim.rounding
    if highest < (1 - PLD_MARGIN) * least:
        return {"verdict": TOO_SMALL, "share": 1 - claim.epsilon / least}
    if own is not None and lowest > (1 + FOLLOWS) * own:
        reason = f"The account that it names gives {own:.3g} for the setting."
        return {"verdict": NOT_FOLLOWING, "reason": reason}
    if lowest > (1 + LOOSE_MARGIN) * most:
        return {"verdict": LOOSE, "share": claim.epsilon / least - 1}
    return {"verdict": HOLDS}


def _spent(account: Callable[[Ledger, float], float], ledger: Ledger, delta: float) -> float | None:
    try:
        return account(ledger, delta)
    except Unaccountable:
        return None


def _unprinted(claim: PrintedEpsilon) -> str:
    required = {
        "sampling rate": claim.rate,
        "number of steps": claim.steps,
        "noise multiplier": claim.noise_multiplier,
    }
    return f"Not printed: {', '.join(name for name, value in required.items() if value is None)}."
