"""Recomputes printed epsilons: each holds, is too small, is loose, or does not follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.comparison.tables.verdict import HOLDS
from dpbench.privacy.accountants import claimed, edgeworth, gdp, pld_of_reals, rdp_of_reals
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger

from .printed import SHUFFLED, PrintedEpsilon

TOO_SMALL, LOOSE = "too small", "loose"
NOT_FOLLOWING, UNKNOWN = "does not follow", "cannot be recounted"

OF_REALS = {"rdp": rdp_of_reals, "pld": pld_of_reals, "gdp": gdp, "edgeworth": edgeworth}
"""Accountants by name: what is printed is meant for noise of real numbers."""

PLD_MARGIN = 1e-3
"""The relative error of our PLD: an epsilon is too small only if below PLD by more than this."""

LOOSE_MARGIN = 0.02
"""An epsilon is loose if above RDP by more than this share, the tolerance of a budget's search."""

FOLLOWS = 0.1
"""The share by which an epsilon may exceed the account that its source names, and still follow."""


@dataclass(frozen=True)
class Recount:
    """A printed epsilon beside that of each accountant; None without one or for an incomplete
    setting.

    own: by the accountant that the source names, as it is used there; unamplified: an upper bound
    for shuffled batches; verdict: one of those above; share: how much too small or loose it is,
    relative to the smaller of PLD and RDP; reason: in words, why it does not follow.
    """

    entry: PrintedEpsilon
    rdp: float | None
    pld: float | None
    gdp: float | None
    edgeworth: float | None
    own: float | None
    unamplified: float | None
    verdict: str
    share: float = 0.0
    reason: str = ""

    @property
    def ruling(self) -> str:
        """The verdict with its percentage, and whether it assumes Poisson samples."""
        by = f" by {100 * self.share:.0f}%" if self.verdict in (TOO_SMALL, LOOSE) else ""
        assumed = self.entry.sampler != "poisson" and self.verdict in (HOLDS, TOO_SMALL, LOOSE)
        return f"{self.verdict}{by}{', if Poisson' if assumed else ''}"


def recount_one(entry: PrintedEpsilon) -> Recount:
    """One printed epsilon by all accountants."""
    if not entry.is_complete:
        return Recount(entry, None, None, None, None, None, None, UNKNOWN, reason=_unprinted(entry))
    ledger, delta = entry.ledger, entry.delta
    spent = {name: _spent(account, ledger, delta) for name, account in OF_REALS.items()}
    spent |= {
        "own": claimed(ledger, delta, entry.accountant) if entry.accountant else None,
        "unamplified": _spent(pld_of_reals, entry.unamplified, delta)
        if entry.sampler == SHUFFLED
        else None,
    }
    bounds = [e for e in (spent["rdp"], spent["pld"]) if e is not None]
    return Recount(entry=entry, **{**spent, **judge(entry, bounds, spent["own"])})


def judge(entry: PrintedEpsilon, bounds: Sequence[float], own: float | None) -> dict[str, Any]:
    """The verdict on a printed epsilon with its share and reason. bounds: valid epsilons."""
    if entry.flaw:
        return {"verdict": NOT_FOLLOWING, "reason": entry.flaw}
    if not bounds:
        return {"verdict": UNKNOWN, "reason": "No accountant has a bound."}
    least, most = min(bounds), max(bounds)
    highest, lowest = entry.epsilon + entry.rounding, entry.epsilon - entry.rounding
    if highest < (1 - PLD_MARGIN) * least:
        return {"verdict": TOO_SMALL, "share": 1 - entry.epsilon / least}
    if own is not None and lowest > (1 + FOLLOWS) * own:
        reason = f"The account that it names gives {own:.3g} for the setting."
        return {"verdict": NOT_FOLLOWING, "reason": reason}
    if lowest > (1 + LOOSE_MARGIN) * most:
        return {"verdict": LOOSE, "share": entry.epsilon / least - 1}
    return {"verdict": HOLDS}


def _spent(account: Callable[[Ledger, float], float], ledger: Ledger, delta: float) -> float | None:
    try:
        return account(ledger, delta)
    except Unaccountable:
        return None


def _unprinted(entry: PrintedEpsilon) -> str:
    required = {
        "sampling rate": entry.rate,
        "number of steps": entry.steps,
        "noise multiplier": entry.noise_multiplier,
    }
    return f"Not printed: {', '.join(name for name, value in required.items() if value is None)}."
