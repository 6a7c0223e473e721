"""The privacy budget of a run, and the noise multiplier that meets it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from dpbench.learning.data.derive.users import Units
from dpbench.privacy.calibrate import calibrate, check_target
from dpbench.privacy.ledger import Ledger, Sampling, Step, query
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.schedules import UNCHANGED, Schedules, run_lengths
from dpbench.system.errors import UserError, warn
from dpbench.system.validate import fraction, positive, quoted, spelled_number

MAX_ENTRIES = 100
"""Entries of a ledger, one per change of the noise: an accountant takes about a second for each."""

FOLLOWS = "follows"
"""The value of privacy.noise_multiplier where other settings of the method determine it."""

TOLERANCE = 1e-4
"""The relative tolerance between a configured noise multiplier and the implied one."""


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
                    f"schedule.noise takes more than {MAX_ENTRIES} values, too many for an "
                    "accountant to compose: use dpbench.mechanism.schedules.Pieces, or Stairs of "
                    "it (dpsgld and dpsghmc: in schedule.lr and schedule.bound, which set the "
                    "noise)."
                )
        return ledger.then(self.once)


@dataclass(frozen=True)
class Privacy:
    """A noise multiplier, or a target epsilon to calibrate it to by `accountant` ("rdp", "pld" or
    "best", the smaller bound), at a delta: exactly one of the two. noise_multiplier "follows"
    leaves it to a method whose other settings determine it."""

    noise_multiplier: float | Literal["follows"] | None
    epsilon: float | None
    delta: float
    accountant: str

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            epsilon, noise = self.epsilon or 2, self.noise_multiplier or 1
            raise UserError(
                "privacy takes either noise_multiplier or epsilon, and the other is null: for an "
                f"epsilon of {epsilon}, write privacy=eps1 privacy.epsilon={epsilon}; for a noise "
                f"multiplier of {noise}, privacy=noise1 privacy.noise_multiplier={noise}."
            )
        if self.noise_multiplier not in (None, FOLLOWS):
            positive("privacy.noise_multiplier", self.noise_multiplier)
        if self.epsilon is not None:
            positive("privacy.epsilon", self.epsilon)
        fraction("privacy.delta", self.delta)
        if self.epsilon is not None and self.epsilon < self.delta:
            raise UserError(
                f"privacy.epsilon={self.epsilon:g} is below privacy.delta={self.delta:g}, and a "
                "guarantee is no better than its delta: raise epsilon, for instance to 1."
            )
        check_target("privacy.accountant", self.accountant)

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

    def noise_of_share(self, what: str, noise: object) -> object:
        """The noise multiplier of a query of all examples that costs a share of the budget, such as
        5%; other values are unchanged. what: the setting. UserError without privacy.epsilon.

        Multipliers^-2 add up (Dong et al. 2022): the query that spends all has 100%.
        """
        if not (isinstance(noise, str) and noise.endswith("%")):
            return noise
        share = spelled_number(noise.removesuffix("%"))
        if isinstance(share, str) or not 0 < share < 100:
            raise UserError(f"{what}={quoted(noise)} must be above 0% and below 100%.")
        if self.epsilon is None:
            raise UserError(
                f"{what}={noise} is a share of privacy.epsilon, which is not set: choose "
                "privacy=eps3, or give a noise multiplier."
            )
        whole = calibrate(
            lambda multiplier: Ledger().after(query("a query", multiplier)),
            *(self.epsilon, self.delta, self.accountant),
        )
        return whole / math.sqrt(share / 100)

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
            warn(
                f"privacy.delta={self.delta:g} is above 1/n = {1 / units.number:.2g}: publishing "
                f"one {units.name} in the clear would satisfy it; choose a smaller delta."
            )
