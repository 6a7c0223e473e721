"""Guarantees: how far an epsilon can be trusted, and why."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dpbench.privacy.ledger import Allocation, Sampling, Shuffled, TruncatedPoisson

Level = Literal["none", "claimed", "approximate", "proven"]
"""How far an epsilon can be trusted, weakest first.

- "none": not at all, and none is shown.
- "claimed": vouched for by the author of a plug-in, and not checked here.
- "approximate": it is an estimate, and no upper bound.
- "proven": it is an upper bound.
"""

STRENGTH: tuple[Level, ...] = get_args(Level)

WITH_EPSILON = STRENGTH[1:]
"""The levels with which an epsilon may be shown."""

VOUCHED: Level = "claimed"
"""The level of a guarantee that rests on the word of a plug-in's author, as records spell it."""

BOUNDS: tuple[Level, ...] = ("proven", VOUCHED)
"""The levels whose epsilons are, or are said to be, upper bounds."""

CORRECTED = "corrected"
"""The default variant of a method; "paper" is the method as its paper printed it."""

DEFAULT_PAPER_ACCOUNTANT = "rdp"
"""The accountant of a paper that names none."""

OTHER_LAWS: dict[type, str] = {
    TruncatedPoisson: "Batches are Poisson samples that are cut at {limit} {unit}s, where one "
    "{unit} may take the place of another.",
    Allocation: "Batches are a random allocation and not Poisson samples: each {unit} is in "
    "exactly {turns} of the {steps} batches of an epoch, drawn uniformly and independently of all "
    "others. PLD accounts for that law; RDP and GDP do not.",
}
"""What is added to the reason for a guarantee under other sampling laws than Poisson's."""


@dataclass(frozen=True)
class Guarantee:
    """How far a method's epsilon can be trusted, and one sentence why, for Poisson samples."""

    level: Level
    why: str

    def vouched_by(self, author: str) -> "Guarantee":
        """The guarantee of a method that contains unchecked code by this author."""
        if self.level == "none":
            return self
        return Guarantee(VOUCHED, f"Claimed by {author}, not checked by dpbench: {self.why}")

    def under(self, law: Sampling) -> "Guarantee":
        """The guarantee if batches are drawn by this law."""
        if isinstance(law, Shuffled):
            return Guarantee("none", "Batches are shuffled, and no accountant knows their law.")
        if self.level == "none" or type(law) not in OTHER_LAWS:
            return self
        why = self.why.replace("Poisson-sampled", "Sampled").replace(
            "per Poisson batch", "per batch"
        )
        return replace(self, why=f"{why} {OTHER_LAWS[type(law)].format_map(vars(law))}")


PROVEN = Guarantee("proven", "Poisson-sampled Gaussian mechanism with a stated sensitivity.")
POST_PROCESSED_SUMS = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism with a stated sensitivity; what is made of the noisy sums "
    "is post-processing.",
)
JOINT = Guarantee(
    "proven", "Gradient sum and noisy counts are one joint Gaussian release per Poisson batch."
)
NON_PRIVATE = Guarantee("none", "Not private: nothing is noised, so epsilon is infinite.")
PRIVATE_DIVISOR = Guarantee(
    "none", "As published: divides by the batch's real size, which is private and not accounted."
)


def weakest(levels: Iterable[Level]) -> Level:
    """The weakest of several levels, which is that of all together."""
    return min(levels, key=STRENGTH.index)
