"""The privacy statement of a run: its epsilons, and what they hold for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from dpbench.privacy.guarantee import Level

Arithmetic = Literal["real", "float", "secure"]
"""The arithmetic for which an epsilon holds.

- "real": for real numbers; floating-point outputs may reveal more about an example.
- "float": for the floating-point outputs, against anyone who does not know the seed: noise is drawn
  and added in float64 and rounded to a grid.
- "secure": the same, with noise from a key that was not stored.
"""

AccountantName = Literal["rdp", "pld", "gdp"]
"""The accountants by the names of their epsilons in a statement."""


@dataclass(frozen=True)
class Accountant:
    """An accountant as people read it; `dpbench.privacy.accountants` has its computation.

    is_bound: whether its epsilon is an upper bound, or an approximation that can be too small.
    """

    label: str
    is_bound: bool

    @property
    def description(self) -> str:
        """In a few words, as `PLD (upper bound)`."""
        return (
            f"{self.label} ({'upper bound' if self.is_bound else 'approximation, can understate'})"
        )


ACCOUNTANTS: dict[AccountantName, Accountant] = {
    "rdp": Accountant("RDP", is_bound=True),
    "pld": Accountant("PLD", is_bound=True),
    "gdp": Accountant("GDP", is_bound=False),
}
"""The accountants, the tightest bound last of the bounds."""

UPPER_BOUNDS = tuple(name for name, accountant in ACCOUNTANTS.items() if accountant.is_bound)

BEST = "best"
"""In place of an accountant: the one with the smaller upper bound."""

BATCHES = {
    "Poisson": "Poisson batches",
    "TruncatedPoisson": "truncated Poisson batches",
    "Allocation": "randomly allocated batches",
    "Shuffled": "shuffled batches",
}
"""The law of a run's batches, as its epsilon's terms name it, by its name in the ledger."""


class Epsilons(TypedDict):
    """The epsilons of a ledger; upper bounds are None without a guarantee or an accountant, and
    infinite if nothing hides an example."""

    rdp: float | None
    pld: float | None
    gdp: float | None
    claimed: float | None
    refused: NotRequired[dict[str, str]]


def smaller_bound(epsilons: Mapping[str, Any]) -> AccountantName | None:
    """The accountant with the smaller upper bound; None where there is no finite one."""
    bounds = {
        name: bound
        for name in UPPER_BOUNDS
        if isinstance(bound := epsilons.get(name), float) and 0 <= bound < math.inf
    }
    return min(bounds, key=bounds.__getitem__, default=None)


def alike(epsilon: float | None, claimed: float | None) -> Epsilons:
    """The same epsilon by all accountants, of which none is refused, and that of a paper."""
    return {"rdp": epsilon, "pld": epsilon, "gdp": epsilon, "claimed": claimed, "refused": {}}


class AttackBounds(TypedDict):
    """Upper bounds of what any attack on a run achieves, however much its attacker knows.

    membership_advantage: true- minus false-positive rate of telling whether an example was trained
    on; true_positive_rate: of the same attack at one false positive in a thousand; reconstruction:
    the probability of naming the right one of 10,000 equally likely values of an example (1e-4 by
    guessing).
    """

    membership_advantage: float
    true_positive_rate: float
    reconstruction: float


class Statement(Epsilons):
    """The terms of a privacy statement, as records have them; docs/records.md describes each.

    Those not required are left out by older records, and `audit` by all but those of audits; see
    `dpbench.records.record.Record.statement`.
    """

    claimed_by: NotRequired[str]
    smaller_bound: NotRequired[AccountantName | None]
    delta: float
    arithmetic: NotRequired[Arithmetic | None]
    noise_multiplier: float
    sample_rate: NotRequired[float | None]
    steps: int
    guarantee: Level
    why: str
    unit: NotRequired[str]
    adjacency: NotRequired[str]
    ledger: list[dict]
    notes: NotRequired[list[str]]
    covered: NotRequired[dict[str, str]]
    attacks: NotRequired[AttackBounds | None]
    audit: NotRequired[dict]


def batches_of(statement: Statement) -> str:
    """The law of the batches of a run's training steps, such as: cyclic Poisson batches."""
    sampling = statement["ledger"][0].get("sampling") if statement["ledger"] else None
    if not isinstance(sampling, dict) or (law := str(sampling.get("law"))) not in BATCHES:
        return "unknown batches"  # a record from elsewhere may say anything
    return f"{'cyclic ' if 'cycle' in sampling else ''}{BATCHES[law]}"
