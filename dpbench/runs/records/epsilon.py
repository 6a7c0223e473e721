"""The epsilon of a record that may be shown, given its guarantee; of a trial that of its search."""

import math
from collections.abc import Collection, Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple, Self, TypeGuard

from dpbench.privacy.guarantee import VOUCHED, WITH_EPSILON, Level
from dpbench.privacy.statement import (
    BEST,
    UPPER_BOUNDS,
    Statement,
    alike,
    batches_of,
    smaller_bound,
)
from dpbench.runs.records.record import Record
from dpbench.system.grouping import grouped

REFUTED = "refuted"
"""The verdict of an audit on a claim that its scores contradict."""

MAX_DECIMALS = 6
"""The most decimals of an upper bound: a smaller one is shown as 0.000001."""

EQUAL_BUDGETS = 1.05
"""The ratio up to which epsilons are those of one budget, as noise is calibrated to about 0.1%, and
by an accountant that need not be the one shown."""

SPARE = 1.1
"""The ratio of an epsilon that was asked for to the one spent above which a sentence says so."""

LARGE = 10**6
"""From here on a bound is shown as a power of ten: `1.35e+7`."""

NOT_PRIVATE = "not private"
NO_PROOF = "no proof"
TOO_LITTLE_NOISE = "too little noise"
"""Of a private method, in place of an infinite epsilon: see `why` in its statement."""
NOT_COMPUTED = "not computed"
OF_ITS_SEARCH = "see its search"
"""Of a trial of a private search, whose choice among others costs more than its own epsilon."""

REASONS = (NOT_COMPUTED, NO_PROOF, OF_ITS_SEARCH, TOO_LITTLE_NOISE, NOT_PRIVATE)
"""Why there is no epsilon."""

OF_A_TRIAL = (
    "This is one trial of a private search, and choosing it among several costs more than its "
    "ledger says: the page of the search has the epsilon of both."
)


def epsilon_or_reason(privacy: Statement, accountant: str) -> float | str:
    """The epsilon by an accountant if it is finite and the guarantee supports it, else a reason."""
    value = privacy.get(accountant)
    infinite = is_recorded_number(value) and math.isinf(value)
    if privacy["guarantee"] not in WITH_EPSILON:
        return NOT_PRIVATE if infinite else NO_PROOF
    if infinite:
        return TOO_LITTLE_NOISE
    return value if is_recorded_number(value) and value >= 0 else NOT_COMPUTED


def largest_epsilon(statements: Iterable[Statement], accountant: str) -> float | str:
    """The largest epsilon of several statements by an accountant, or why one of them has none."""
    found = [epsilon_or_reason(statement, accountant) for statement in statements]
    reasons = [value for value in found if isinstance(value, str)]
    return reasons[0] if reasons else max(v for v in found if not isinstance(v, str))


class Terms(NamedTuple):
    """What an epsilon is stated for: its delta, what adjacent data sets differ by, the law of the
    batches, and how far it can be trusted."""

    delta: float
    unit: str
    zero_out: bool
    batches: str
    guarantee: Level

    @classmethod
    def of(cls, statement: Statement) -> Self:
        """The terms of a statement that has them all."""
        delta, unit = statement["delta"], statement["unit"]
        zero_out = statement["adjacency"].startswith("zero out")
        return cls(delta, unit, zero_out, batches_of(statement), statement["guarantee"])

    @property
    def comparable(self) -> tuple[float, str, bool]:
        """The terms that two epsilons must share for their sizes to be compared."""
        return self.delta, self.unit, self.zero_out

    @property
    def text_of_delta(self) -> str:
        """Delta, and in brackets what differs from one example that is added or removed, such as:
        1e-06 (per user)."""
        others = {"unit": self.unit != "example", "zero_out": self.zero_out}
        aside = self.text([name for name, differs in others.items() if differs])
        delta = delta_text(self.delta)
        return f"{delta} ({aside})" if aside else delta

    def text(self, names: Collection[str]) -> str:
        """The named terms as words, such as: delta 1e-06, per example."""
        texts = {
            "delta": f"delta {delta_text(self.delta)}",
            "unit": f"per {self.unit}",
            "zero_out": f"{'zero-out' if self.zero_out else 'add-or-remove'} adjacency",
            "batches": self.batches,
            "guarantee": self.guarantee,
        }
        return ", ".join(texts[name] for name in self._fields if name in names)


EXACT = "exact, not covered"
"""Said of a number that is computed from private data without noise, which no epsilon covers."""


USUAL = "per example, add-or-remove adjacency"
"""The terms of an epsilon of ours, where nothing else is said."""


def epsilon_in_words(record: Record, alone: bool = False) -> str:
    """The smaller epsilon of a run with its terms, or why there is none.

    alone: for whoever does not have the record, with its notes in place of a word on them, and with
    what is covered of the data.
    """
    statement, budget = record.statement, record.config.get("privacy") or {}
    by = smaller_bound(statement) or "pld"
    value = OF_ITS_SEARCH if is_trial(record) else epsilon_or_reason(statement, by)
    if isinstance(value, str):
        return f"epsilon: {value}"
    terms, details = Terms.of(statement), [by.upper(), f"delta {delta_text(statement['delta'])}"]
    if (target := budget.get("epsilon")) is not None:
        by_one = "" if budget["accountant"] == BEST else f" by {budget['accountant'].upper()}"
        details.append(f"noise for {target:g}{by_one}")
    details.append(terms.text([name for name in Terms._fields if name != "delta"]))
    if statement["notes"] and not alone:
        details.append("notes on the data in privacy.notes of the record")
    text = f"epsilon {rounded_up(value)} ({', '.join(details)})"
    if not alone:
        return text
    facts = "; ".join(facts_in_words(statement))
    return " ".join(
        [f"{text}.", *statement["notes"], *([f"Of the data: {facts}."] if facts else [])]
    )


def unspent(runs: Iterable[tuple[Mapping[str, Any], Statement]]) -> str:
    """A sentence where noise was calibrated to an epsilon that is more than a tenth larger than the
    smaller bound of what it spends, by the widest such gap; "" where there is none.

    runs: their configurations and statements.
    """
    gaps: list[tuple[float, str]] = []
    for config, statement in runs:
        budget, by = config.get("privacy") or {}, smaller_bound(statement)
        target, accountant = budget.get("epsilon"), budget.get("accountant")
        if config.get("trial") or not (is_recorded_number(target) and accountant and by):
            continue
        if target > SPARE * (spent := statement[by] or math.inf):
            by_one = "" if accountant == BEST else f" by {accountant.upper()}"
            way_out = "privacy.accountant=best needs less noise"
            # With less noise the epsilon would be infinite (docs/privacy/arithmetic.md#noise).
            own = statement.get(by if accountant == BEST else accountant)
            if is_recorded_number(own) and target > SPARE * own:
                way_out = "no larger epsilon takes less noise at this delta"
            asked = f"Noise for epsilon {target:g}{by_one}"
            gap = f"{asked} spends {rounded_up(spent)} by {by.upper()}: {way_out}."
            gaps.append((target / spent, gap))
    return max(gaps)[1] if gaps else ""


def facts_in_words(statement: Statement) -> list[str]:
    """Which facts of the data an epsilon covers, and which it does not, as far as they have
    names."""
    ways = {"epsilon": "covered by epsilon", "public": "given as public", "exact": EXACT}
    by = grouped((way, name) for name, way in statement.get("covered", {}).items())
    return [f"{told}: {', '.join(by[way])}" for way, told in ways.items() if way in by]


def legend(statements: Iterable[Statement]) -> str:
    """The terms of the epsilons of several statements, as a sentence; "" where none has one."""
    found = {
        Terms.of(statement)
        for statement in statements
        if any(not isinstance(epsilon_or_reason(statement, by), str) for by in UPPER_BOUNDS)
    }
    texts = [sorted({terms.text([name]) for terms in found}) for name in Terms._fields]
    return f"Epsilons: {', '.join(map(' or '.join, texts))}." if found else ""


def marked(epsilon: str, guarantee: str) -> str:
    """An epsilon as pages show it: marked if it is only claimed."""
    return f"{epsilon} ({VOUCHED})" if guarantee == VOUCHED else epsilon


def rounded_up(epsilon: float, digits: int = 2) -> str:
    """An upper bound as text, rounded up so that it is one still. digits: decimals, and more for a
    smaller bound, so that two of its digits are shown."""
    if 0 < epsilon < 10.0**-digits:
        digits = min(MAX_DECIMALS, 1 - Decimal(repr(float(epsilon))).adjusted())
    return _rounded(epsilon, digits, ROUND_CEILING)


def delta_text(delta: float, digits: int = 6) -> str:
    """A delta as text, rounded up, as epsilon holds at any larger one; digits: significant ones."""
    if not 0 < delta < math.inf:
        return f"{delta:g}"
    value = Decimal(repr(float(delta)))
    unit = Decimal(1).scaleb(value.adjusted() - digits + 1)
    return f"{float(value.quantize(unit, ROUND_CEILING)):.{digits}g}"


def percent_rounded_up(bound: float) -> str:
    """An upper bound in percent, to three digits, rounded up."""
    percent = Decimal(repr(float(bound))).scaleb(2)
    return f"{rounded_up(float(percent), max(2 - percent.adjusted(), 0) if percent else 0)}%"


def rounded_down(epsilon: float, digits: int = 2) -> str:
    """A lower bound as text, rounded down so that it is one still; digits: decimals."""
    return _rounded(epsilon, digits, ROUND_FLOOR)


def _rounded(epsilon: float, digits: int, rounding: str) -> str:
    if not math.isfinite(epsilon):
        return str(epsilon)
    value = Decimal(repr(float(epsilon)))  # the shortest decimal of a float: 1.1 is 1.10, not 1.11
    if abs(value) < LARGE:
        return str(value.quantize(Decimal(1).scaleb(-digits), rounding))
    return f"{value.quantize(Decimal(1).scaleb(value.adjusted() - digits), rounding):.{digits}e}"


def is_recorded_number(value: object) -> TypeGuard[float]:
    """Whether a value of a record is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_trial(record: Record) -> bool:
    """Whether the record is of a trial of a private search."""
    return record.config.get("trial") is not None


def released(record: Record, statement: Statement) -> Statement:
    """The statement of a record as others may read it; of a trial without its epsilons and bounds
    of attacks, which are not those of what is published."""
    if not is_trial(record):
        return statement
    return {
        **statement,
        **alike(None, None),
        "attacks": None,
        "smaller_bound": None,
        "refused": dict.fromkeys(UPPER_BOUNDS, OF_A_TRIAL),
        "why": f"{statement['why']} {OF_A_TRIAL}",
    }
