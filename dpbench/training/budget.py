"""The privacy budget of a run: its noise multiplier, and the statement of its epsilon."""

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dpbench.data.derive.users import Units
from dpbench.errors import UserError
from dpbench.mechanism.method import Method
from dpbench.mechanism.schedules import UNCHANGED, Schedules, run_lengths
from dpbench.privacy.accountants import ACCOUNTANTS, claimed, gdp, noise_is_too_small
from dpbench.privacy.calibrate import calibrate
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.guarantee import DEFAULT_CLAIM
from dpbench.privacy.ledger import (
    Ledger,
    Sampling,
    Shuffled,
    Step,
    to_plain,
)
from dpbench.validate import fraction, one_of, positive

MAX_ENTRIES = 100
"""Entries of a ledger, one per change of the noise: an accountant takes about a second for each."""

FOLLOWS = "follows"
"""The value of privacy.noise_multiplier where other settings of the method determine it."""

TOLERANCE = 1e-4
"""The relative tolerance between a configured noise multiplier and the implied one."""


NOISE_ENDS = (
    "Noise in floating point ends, and this one ends where it would have to hide an example: no "
    "epsilon holds at this delta."
)

WHOLE_USERS = "What it protects is a user with all of its examples."


@dataclass(frozen=True)
class PlannedSteps:
    """The steps of a run before its noise multiplier is known, and what the run releases once."""

    method: Method
    sampling: Sampling
    number: int
    schedule: Schedules = UNCHANGED
    once: Ledger = field(default_factory=Ledger)

    def ledger(self, multiplier: float) -> Ledger:
        """The planned ledger, with an entry for consecutive steps of the same noise multiplier.

        What is released once comes last, even if it is released before the steps. Raises UserError
        for more entries than an accountant can compose.
        """
        ledger = Ledger()
        for factor, times in run_lengths(self.schedule.noise, self.number):
            step = Step(self.sampling, self.method.releases(multiplier * factor))
            ledger = ledger.after(step, times)
            if len(ledger.entries) > MAX_ENTRIES:
                raise UserError(
                    f"schedule.noise takes more than {MAX_ENTRIES} values, each of which an "
                    "accountant has to compose: use dpbench.mechanism.schedules.Pieces, or Stairs "
                    "of it (for dpsgld and dpsghmc, in schedule.lr and schedule.bound, from which "
                    "the noise follows)."
                )
        return ledger.then(self.once)


@dataclass(frozen=True)
class Privacy:
    """A noise multiplier, or a target epsilon to calibrate it to, at a delta.

    Exactly one of noise_multiplier and epsilon is given; `accountant` ("rdp" or "pld") is used for
    calibration. noise_multiplier "follows" leaves it to a method whose other settings determine it.
    """

    noise_multiplier: float | Literal["follows"] | None
    epsilon: float | None
    delta: float
    accountant: str

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            example = 2 if self.epsilon is None else self.epsilon
            raise UserError(
                "privacy takes either noise_multiplier or epsilon, and the other is null: for an "
                f"epsilon of {example}, write privacy=eps1 privacy.epsilon={example}."
            )
        if self.noise_multiplier not in (None, FOLLOWS):
            positive("privacy.noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            positive("privacy.epsilon", self.epsilon)
        fraction("privacy.delta", self.delta)
        one_of("privacy.accountant", self.accountant, ACCOUNTANTS)
        if self.accountant == "gdp":
            raise UserError(
                "privacy.accountant=gdp is an approximation and cannot be a target: use pld."
            )

    def multiplier(self, steps: PlannedSteps) -> float:
        """The configured or calibrated noise multiplier; 0 for a method that adds no noise.

        A target epsilon includes all side queries, and what is released once. A noise schedule
        multiplies the result.
        """
        if not steps.method.private:
            return 0.0
        if self.noise_multiplier == FOLLOWS:
            raise UserError(
                f"the noise of {steps.method.name} does not follow from other settings: set "
                "privacy.noise_multiplier to a number, or to null with a privacy.epsilon."
            )
        if self.noise_multiplier is not None:
            return float(self.noise_multiplier)
        assert self.epsilon is not None
        return calibrate(steps.ledger, self.epsilon, self.delta, self.accountant)

    def confirmed_multiplier(self, implied: float, steps: PlannedSteps) -> float:
        """The noise multiplier implied by a method's other settings; UserError if the configured
        one differs."""
        if self.noise_multiplier == FOLLOWS:
            return implied
        configured = self.multiplier(steps)
        if not math.isclose(configured, implied, rel_tol=TOLERANCE):
            raise UserError(
                f"{steps.method.name} has noise multiplier {implied:.6g} by its learning rate, "
                f"bound and batch size, and {configured:.6g} is configured: set privacy=follows, "
                f"or make optimizer.lr {(implied / configured) ** 2:.6g} times as large."
            )
        return implied

    def warn_if_weak(self, units: Units) -> None:
        """Warn of a delta above 1/n, which permits a mechanism to publish all data of one unit."""
        if self.delta > 1 / units.number:
            warnings.warn(
                f"privacy.delta={self.delta:g} is above 1/n = {1 / units.number:.2g}: publishing "
                f"one {units.name} in the clear would satisfy it; choose a smaller delta.",
                stacklevel=2,
            )


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
    return epsilons | {
        "claimed_by": accountant,
        "delta": delta,
        "arithmetic": ARITHMETIC[noise] if method.private else None,
        "noise_multiplier": noise_multiplier,
        "sample_rate": None if isinstance(sampling, Shuffled | None) else sampling.rate,
        "steps": ledger.steps,
        "guarantee": guarantee.level,
        "why": guarantee.why if unit == "example" else f"{guarantee.why} {WHOLE_USERS}",
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
