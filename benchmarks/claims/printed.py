"""The registry of printed epsilons: one per row of `benchmarks/claims/claims.csv`."""

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpbench.privacy.accountants import PAPER_ACCOUNTANTS, SPENT
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Mechanism,
    Poisson,
    Release,
    Step,
)
from dpbench.step.mechanism.method import GRADIENT_SUM
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

SHUFFLED = "shuffled"
SAMPLERS = ("poisson", SHUFFLED, "unstated")
EVIDENCE = ("verified", "assumed", "derived")
MECHANISMS = ("gaussian", "logistic_sign")
NAMED_ACCOUNTANTS = ("", *SPENT, *(name for name in PAPER_ACCOUNTANTS if name not in SPENT))
"""The accountants that a source may name as its own; "" for none, or one that is not here."""


@dataclass(frozen=True)
class PrintedEpsilon:
    """One printed epsilon, and the setting that it was printed for.

    n, batch: numbers of examples; rate: the sampling rate, batch/n unless it is given;
    single_queries: multipliers of queries made once on all examples; side_queries: of further
    queries of every batch; layers: parts of the sum that are clipped and noised separately;
    printed: the number as written; accountant: what it was computed by, empty if that is not known;
    evidence: whether the setting was verified in a public copy or is assumed, or the number is
    derived from a printed statement; flaw: why no epsilon follows from the setting, if none does.
    """

    id: str
    source: str
    where: str
    setting: str
    n: int | None
    batch: int | None
    rate: float | None
    steps: int | None
    noise_multiplier: float | None
    single_queries: tuple[float, ...]
    side_queries: tuple[float, ...]
    layers: int
    delta: float
    sampler: str
    mechanism: str
    dimension: int | None
    printed: str
    accountant: str
    evidence: str
    flaw: str
    note: str

    @property
    def epsilon(self) -> float:
        return float(self.printed)

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed decimal; 0 for a whole number, which is a budget."""
        decimals = len(self.printed.partition(".")[2])
        return 0.5 * 10**-decimals if decimals else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether enough was printed to account for."""
        return None not in (self.rate, self.steps, self.noise_multiplier)

    @property
    def ledger(self) -> Ledger:
        """What the setting releases if its batches are Poisson samples."""
        return self._with_steps(*self._sampling)

    @property
    def unamplified(self) -> Ledger:
        """What the setting releases to somebody who knows the batch of every example.

        It covers shuffled batches, where an example is in one batch of each pass, if neighbouring
        data replace the example's gradient by zero: its place in the permutation stays.
        """
        rate, steps = self._sampling
        return self._with_steps(1.0, math.ceil(steps * rate - 1e-9))

    @property
    def _sampling(self) -> tuple[float, int]:
        assert self.rate is not None
        assert self.steps is not None
        return self.rate, self.steps

    def _with_steps(self, rate: float, steps: int) -> Ledger:
        queries = [Release("query beside", GaussianMechanism(sigma)) for sigma in self.side_queries]
        ledger = Ledger().after(Step(Poisson(rate), (self._sum(), *queries)), steps)
        for sigma in self.single_queries:
            query = Release("query of all examples", GaussianMechanism(sigma))
            ledger = ledger.after(Step(Poisson(1.0), (query,)))
        return ledger

    def _sum(self) -> Release:
        """The noisy sum of gradients; one example moves all layers at once, each by its bound."""
        assert self.noise_multiplier is not None
        mechanism: Mechanism = GaussianMechanism(self.noise_multiplier)
        if self.layers > 1:
            layerwise = GaussianMechanism(self.noise_multiplier / math.sqrt(self.layers))
            return Release(GRADIENT_SUM, layerwise, claimed=mechanism)
        if self.dimension is not None:
            scale = self.noise_multiplier
            mechanism = CoordinateMechanism("logistic", scale, self.dimension, signed=True)
        return Release(GRADIENT_SUM, mechanism)


def read_printed(path: Path) -> list[PrintedEpsilon]:
    """The rows of a registry in their order; UserError for the first malformed one."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [field.name for field in fields(PrintedEpsilon)]
    if not rows or list(rows[0]) != names:
        raise UserError(f"{path.name} must have the columns {', '.join(names)}.")
    printed = [_entry(row, f"{path.name}, line {line}") for line, row in enumerate(rows, 2)]
    for number, entry in enumerate(printed):
        if entry.id in {other.id for other in printed[:number]}:
            raise UserError(f"{path.name} has {entry.id} twice.")
    return printed


def _entry(row: Mapping[str, str], place: str) -> PrintedEpsilon:
    parsers: dict[str, Callable[[str], object]] = {
        **dict.fromkeys(("n", "batch", "steps", "dimension"), _integer),
        **dict.fromkeys(
            ("single_queries", "side_queries"), lambda text: tuple(map(_positive, text.split()))
        ),
        "rate": lambda text: _positive(text) if text else _share(row["batch"], row["n"]),
        "noise_multiplier": lambda text: _positive(text) if text else None,
        "layers": lambda text: _integer(text) or 1,
        "delta": _positive,
        "printed": lambda text: text if _positive(text) else "",
    }
    values: dict[str, Any] = {}
    for name, text in row.items():
        try:
            values[name] = parsers.get(name, str)(text or "")
        except (ValueError, ZeroDivisionError):
            raise UserError(f"{place}: {name} cannot be {text!r}.") from None
    entry = PrintedEpsilon(**values)
    _check(entry, place)
    return entry


def _check(entry: PrintedEpsilon, place: str) -> None:
    if not (entry.id and entry.source and entry.where and entry.setting):
        raise UserError(f"{place}: a claim needs an id, a source, a place in it and a setting.")
    one_of(f"{place}: sampler", entry.sampler, SAMPLERS)
    one_of(f"{place}: evidence", entry.evidence, EVIDENCE)
    one_of(f"{place}: mechanism", entry.mechanism, MECHANISMS)
    one_of(f"{place}: accountant", entry.accountant, NAMED_ACCOUNTANTS)
    if not entry.delta < 1 or (entry.rate is not None and entry.rate > 1):
        raise UserError(f"{place}: delta must be below 1, and the sampling rate at most 1.")
    if (entry.mechanism == "gaussian") != (entry.dimension is None):
        raise UserError(
            f"{place}: noise on each coordinate needs a dimension, and other noise has none."
        )


def _integer(text: str) -> int | None:
    if not text:
        return None
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> float:
    """A number, a fraction or one over a product: 0.004, 1/142, 1/(1.1*18576)."""
    above, _, below = text.partition("/")
    factors = below.strip("()").split("*") if below else []
    value = Fraction(above)
    for factor in factors:
        value /= Fraction(factor)
    if value <= 0:
        raise ValueError(text)
    return float(value)


def _share(batch: str, n: str) -> float | None:
    return int(batch) / int(n) if batch and n else None
