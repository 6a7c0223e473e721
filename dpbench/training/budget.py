"""The privacy budget of a run: how much noise it asks for, and what can be said of its epsilon."""

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from dpbench.data.derive.users import Units
from dpbench.errors import UserError
from dpbench.mechanism.method import Guarantee, Method
from dpbench.mechanism.schedules import UNCHANGED, Schedules, stretches
from dpbench.privacy.accountants import ACCOUNTANTS, claimed, gdp
from dpbench.privacy.calibrate import calibrate
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger, Poisson, Sampling, Shuffled, Step, to_plain
from dpbench.validate import fraction, one_of, positive

MOST_ENTRIES = 100
"""Stretches of one noise multiplier: an accountant takes about a second for each."""

FOLLOWS = "follows"
"""In the place of a noise multiplier, where the method's other settings say what it is."""

TOLERANCE = 1e-4
"""How far a noise multiplier that was asked for may be from the one that follows, relatively."""


WHOLE_USERS = "What it protects is a user with all of its examples."


@dataclass(frozen=True)
class Privacy:
    """A noise multiplier, or an epsilon that one is found for, at a delta.

    Exactly one of noise_multiplier and epsilon is given; `accountant` ("rdp" or "pld") is the one
    that an epsilon is met by. noise_multiplier "follows" asks for none, where a method has its own.
    """

    noise_multiplier: float | Literal["follows"] | None
    epsilon: float | None
    delta: float
    accountant: str

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise UserError(
                "privacy takes either noise_multiplier or epsilon: set one, leave the other null."
            )
        if self.noise_multiplier not in (None, FOLLOWS):
            positive("privacy.noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            positive("privacy.epsilon", self.epsilon)
        fraction("privacy.delta", self.delta)
        one_of("privacy.accountant", self.accountant, ACCOUNTANTS)
        if self.accountant == "gdp":
            raise UserError(
                "privacy.accountant=gdp cannot be aimed at, as it only approximates: use pld."
            )

    def multiplier(
        self,
        method: Method,
        sampling: Sampling,
        steps: int,
        schedule: Schedules = UNCHANGED,
        score: Step | None = None,
    ) -> float:
        """The noise multiplier that is asked for; 0 for a method that adds no noise.

        A target epsilon is met after all side queries have been paid. Where the noise has a
        schedule, it is what that multiplies.
        """
        if not method.private:
            return 0.0
        if self.noise_multiplier == FOLLOWS:
            raise UserError(
                f"the noise of {method.name} follows from nothing: set privacy.noise_multiplier to "
                "a number, or to null with a privacy.epsilon."
            )
        if self.noise_multiplier is not None:
            return float(self.noise_multiplier)
        assert self.epsilon is not None
        return calibrate(
            lambda sigma: planned_ledger(method, sampling, steps, sigma, schedule, score),
            self.epsilon,
            self.delta,
            self.accountant,
        )

    def confirmed_multiplier(
        self,
        follows: float,
        method: Method,
        sampling: Sampling,
        steps: int,
        schedule: Schedules,
        score: Step | None = None,
    ) -> float:
        """The noise multiplier that follows from a method's other settings; UserError if another
        one is asked for."""
        if self.noise_multiplier == FOLLOWS:
            return follows
        asked = self.multiplier(method, sampling, steps, schedule, score)
        if not math.isclose(asked, follows, rel_tol=TOLERANCE):
            raise UserError(
                f"{method.name} has noise multiplier {follows:.6g} by its learning rate, bound and "
                f"batch size, and {asked:.6g} is asked for: set privacy=follows, or make "
                f"optimizer.lr {(follows / asked) ** 2:.6g} times as large."
            )
        return follows

    def warn_if_weak(self, units: Units) -> None:
        """Warn of a delta above 1/n, which lets a mechanism publish all of one unit."""
        if self.delta > 1 / units.number:
            warnings.warn(
                f"privacy.delta={self.delta:g} is above 1/n = {1 / units.number:.2g}: publishing "
                f"one {units.name} in the clear would satisfy it; choose a smaller delta.",
                stacklevel=2,
            )


def planned_ledger(
    method: Method,
    sampling: Sampling,
    steps: int,
    multiplier: float,
    schedule: Schedules,
    score: Step | None = None,
) -> Ledger:
    """The ledger of so many steps as planned: an entry for every stretch of one noise multiplier.

    Raises UserError for more of those than an accountant can compose.
    """
    ledger = Ledger()
    for factor, times in stretches(schedule.noise, steps):
        ledger = ledger.after(Step(sampling, method.releases(multiplier * factor)), times)
        if len(ledger.entries) > MOST_ENTRIES:
            raise UserError(
                f"schedule.noise takes more than {MOST_ENTRIES} values, and an accountant has to "
                "compose each: use dpbench.mechanism.schedules.Pieces, or Stairs of it (in dpsgld "
                "and dpsghmc, for schedule.lr and schedule.bound, which it follows)."
            )
    return ledger.after(score) if score else ledger


ARITHMETIC = {"seeded": "float", "secure": "secure"}
"""For which numbers an epsilon holds, by where the noise comes from. Records from before it was
said have noise of float32 uniforms, and theirs holds for "real" numbers only.

- "real": for real numbers; floats may say more of an example.
- "float": for the floats that are computed with, to whoever does not know the seed: noise is drawn
  and added in float64 and rounded to a grid.
- "secure": the same, and the noise is of a key that was not kept.
"""


def statement(
    ledger: Ledger,
    method: Method,
    delta: float,
    noise_multiplier: float,
    noise: str = "seeded",
    claimed_by: str = "rdp",
) -> dict:
    """What can be said of a ledger's epsilon, as a plain dictionary for records and users.

    `rdp` and `pld` are upper bounds and `gdp` an approximation; all are None where the method has
    no guarantee, and infinite where it is not private. One of the bounds is None where its
    accountant has none, and `refused` then says why. `claimed` is what the paper's own reasoning
    gives, whether or not it holds: by `claimed_by` (or the method's own, where it has one), each
    release on a batch of its own. `arithmetic` is of ARITHMETIC, for the noise of that name.
    """
    sampling = ledger.entries[0][0].sampling if ledger.entries else None
    claimed_by = method.claimed_by or claimed_by
    guarantee = method.guarantee
    if method.private and isinstance(sampling, Shuffled):
        guarantee = Guarantee("none", "Batches are shuffled, and no accountant knows their law.")
    unit = sampling.unit if sampling else "example"
    numbers = ("rdp", "pld", "gdp", "claimed")
    said: dict[str, Any] = dict.fromkeys(numbers) | {"refused": {}}
    if not method.private:
        said |= dict.fromkeys(numbers, math.inf)
    elif not isinstance(sampling, Shuffled):
        said["claimed"] = claimed(ledger, delta, claimed_by)
        if guarantee.level != "none":
            said |= _bounds(ledger, delta)
            # An approximation may fail where the bounds do not.
            with suppress(Unaccountable):
                said["gdp"] = gdp(ledger, delta)
    return said | {
        "claimed_by": claimed_by,
        "delta": delta,
        "arithmetic": ARITHMETIC[noise] if method.private else None,
        "noise_multiplier": noise_multiplier,
        "sample_rate": sampling.rate if isinstance(sampling, Poisson) else None,
        "steps": ledger.steps,
        "guarantee": guarantee.level,
        "why": guarantee.why if unit == "example" else f"{guarantee.why} {WHOLE_USERS}",
        "unit": unit,
        "adjacency": f"add or remove one {unit}",
        "ledger": to_plain(ledger),
    }


def _bounds(ledger: Ledger, delta: float) -> dict:
    """The upper bounds by accountant; under `refused`, why there is none by one of them.

    Raises Unaccountable where there is none at all.
    """
    refused: dict[str, str] = {}
    bounds: dict[str, float | None] = {}
    for name in ("rdp", "pld"):
        try:
            bounds[name] = ACCOUNTANTS[name](ledger, delta)
        except Unaccountable as error:
            bounds[name], refused[name] = None, str(error)
    if len(refused) == len(bounds):
        raise Unaccountable(" ".join(refused.values()))
    return bounds | {"refused": refused}
