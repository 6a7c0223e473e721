"""A printed epsilon beside what its setting spends: holds, too small, loose, or does not follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.papers.claims.registry import SHUFFLED, PrintedEpsilon
from dpbench.privacy.accountants import ACCOUNTANTS, claimed, pld
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger

HOLDS, TOO_SMALL, LOOSE = "holds", "too small", "loose"
NOT_FOLLOWING, UNKNOWN = "does not follow", "cannot be recounted"
VERDICTS = (HOLDS, TOO_SMALL, LOOSE, NOT_FOLLOWING, UNKNOWN)

PLD_MARGIN = 1e-3
"""The relative error of our PLD: a claim is too small only below PLD by more than this."""

LOOSE_MARGIN = 0.02
"""The share above RDP from which a claim is loose; below it, a search for a budget ended there."""

FOLLOWS = 0.1
"""The share by which a claim may exceed the account that it names and still follow from it."""


@dataclass(frozen=True)
class Recount:
    """A claim and its accounts; None where an accountant has none, or the setting is not complete.

    own: by the accountant that it names, as that is used; unamplified: at most this is spent by
    batches of a permutation; verdict: one of VERDICTS; share: by how much of PLD or RDP, whichever
    is smaller, the claim is too small or loose; reason: in words, where it does not follow.
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
        """The verdict with its percentage, and whether it takes Poisson samples for granted."""
        by = f" by {100 * self.share:.0f}%" if self.verdict in (TOO_SMALL, LOOSE) else ""
        assumed = self.claim.sampler != "poisson" and self.verdict in (HOLDS, TOO_SMALL, LOOSE)
        return f"{self.verdict}{by}{', if Poisson' if assumed else ''}"


def recount(claims: Sequence[PrintedEpsilon], count: Callable[[], None]) -> list[Recount]:
    """Each claim by all accountants; `count` is called after each."""
    found = []
    for claim in claims:
        found.append(recount_one(claim))
        count()
    return found


def recount_one(claim: PrintedEpsilon) -> Recount:
    """One claim by all accountants."""
    if not claim.is_complete:
        return Recount(claim, None, None, None, None, None, UNKNOWN, reason=_unprinted(claim))
    ledger, delta = claim.ledger, claim.delta
    spent = {name: _spent(account, ledger, delta) for name, account in ACCOUNTANTS.items()}
    spent |= {
        "own": claimed(ledger, delta, claim.accountant) if claim.accountant else None,
        "unamplified": _spent(pld, claim.unamplified, delta) if claim.sampler == SHUFFLED else None,
    }
    bounds = [e for e in (spent["rdp"], spent["pld"]) if e is not None]
    return Recount(claim=claim, **{**spent, **judged(claim, bounds, spent["own"])})


def judged(claim: PrintedEpsilon, bounds: Sequence[float], own: float | None) -> dict[str, Any]:
    """The verdict on a printed epsilon, with its share and reason, by the bounds that hold."""
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
    said = {
        "sampling rate": claim.rate,
        "number of steps": claim.steps,
        "noise multiplier": claim.noise_multiplier,
    }
    return f"Not printed: {', '.join(name for name, value in said.items() if value is None)}."
