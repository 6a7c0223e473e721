"""Table 1 and Theorem 3 of Bu et al. (calibration): the paper's claims beside our measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpbench.comparison.tables.grid import Grid, grid_of, tally
from dpbench.comparison.tables.published import PublishedTable
from dpbench.comparison.tables.verdict import FORMS, HOLDS
from dpbench.system.errors import counted
from dpbench.system.grouping import grouped

from .laboratory import FINER, FlowRun
from .properties import TOLERANCE

STATIONARY = 0.05
"""A loss above zero is stationary if its range in the last quarter of the steps is at most this
share of it, and of its decrease in the first quarter."""

VANISHES = 0.5
"""The effect of noise vanishes with the step size if the ratio of its effects at the finer step and
at lr is at most this; it should be 1/sqrt(FINER)."""

SYMMETRIC, QUADRATIC, EIGENVALUES = "symmetric", "quadratic form", "eigenvalues"
MONOTONE, ZERO, SAME = "monotone loss", "zero loss", "same flow with noise"
PROPERTIES = (SYMMETRIC, QUADRATIC, EIGENVALUES, MONOTONE, ZERO)
"""The properties in Table 1."""

FAILS, SHOWN, NOT_SEEN, OPEN = "fails", "shown", "not seen", "open"
WORDS = {
    HOLDS: FORMS[HOLDS],
    SHOWN: (SHOWN, SHOWN),
    FAILS: (FAILS, "fail"),
    NOT_SEEN: (NOT_SEEN, NOT_SEEN),
    OPEN: (OPEN, OPEN),
}
"""The verdicts, as they read for one and for several."""

RULE = (
    'Verdict: a "yes" of the paper (guaranteed) holds where nothing against it was seen and fails '
    'where something was; a "no" (not guaranteed) is shown where it was seen to be lost, else not '
    f"seen. Numbers within {TOLERANCE:g} of the matrix' Frobenius norm, and cosines within it of 0,"
    " count as 0. A loss counts as risen where dL/dt > 0, by the cosine of the gradient and its "
    "clipped form; what it ends at is open while it still moves: where its range in the last "
    f"quarter of the steps is more than {STATIONARY:.0%} of it, or of what it lost in the first."
)
RULE_OF_NOISE = (
    "The flow is the same with noise where the distance of the losses with and without it vanishes "
    f"with the step size: steps of 1/{FINER} for the same time should leave 1/{FINER**0.5:g} of its"
    f" mean over the flows of a row, and more than {VANISHES:g} of it speaks against the claim."
)


@dataclass(frozen=True)
class PropertyClaim:
    """One cell of the paper's table with our measurement.

    guaranteed: the paper's claim. satisfied: whether the property held in all measurements; None if
    undecided. worst: the number that decided it, in the unit of its property (see UNITS).
    """

    label: str
    name: str
    guaranteed: bool
    satisfied: bool | None
    worst: float

    @property
    def verdict(self) -> str:
        if self.satisfied is None:
            return OPEN
        if self.guaranteed:
            return HOLDS if self.satisfied else FAILS
        return NOT_SEEN if self.satisfied else SHOWN


UNITS = {
    SYMMETRIC: "largest |M_ij - M_ji| / |M|",
    QUADRATIC: "least x'Mx / |M|, |x| = 1",
    EIGENVALUES: "least real part of an eigenvalue / |M|",
    MONOTONE: "least cosine",
    ZERO: "largest last loss / first loss",
    SAME: f"mean distance by noise at lr/{FINER} / at lr",
}


def claims(
    findings: Sequence[FlowRun], printed: PublishedTable, zero: float
) -> list[PropertyClaim]:
    """The paper's claims with the worst measurement over all flows of a label.

    They are in the order of the findings.
    """
    return [
        PropertyClaim(label, name, printed[label, name].value == "1", *_check(name, flows, zero))
        for label, flows in grouped((finding.label, finding) for finding in findings).items()
        for name in (*PROPERTIES, SAME)
        if (label, name) in printed
    ]


def _check(name: str, findings: Sequence[FlowRun], zero: float) -> tuple[bool | None, float]:
    """Whether a property was satisfied (None if undecided), and its worst number."""
    kernels = [kernel for finding in findings for kernel in finding.flow.kernels]
    if name == ZERO:
        return _zero_loss(findings, zero)
    if name == SAME:
        coarse, finer = (sum(finding.noise[k] for finding in findings) for k in (0, 1))
        return finer / coarse <= VANISHES, finer / coarse
    if name == SYMMETRIC:
        largest = max(kernel.asymmetry for kernel in kernels)
        return largest <= TOLERANCE, largest
    least = {
        QUADRATIC: min(kernel.quadratic for kernel in kernels),
        EIGENVALUES: min(kernel.eigenvalue for kernel in kernels),
        MONOTONE: min(cosine for finding in findings for cosine in finding.flow.cosines),
    }[name]
    return least >= -TOLERANCE, least


def _zero_loss(findings: Sequence[FlowRun], zero: float) -> tuple[bool | None, float]:
    curves = [finding.flow.losses for finding in findings]
    above = [losses for losses in curves if losses[-1] > zero * losses[0]]
    worst = max(losses[-1] / losses[0] for losses in curves)
    if not above:
        return True, worst
    return (False if any(map(_is_stationary, above)) else None), worst


def _is_stationary(losses: Sequence[float]) -> bool:
    early, late = (k * (len(losses) - 1) // 4 for k in (1, 3))
    last = losses[late:]
    decrease = losses[0] - losses[early]
    return max(last) - min(last) <= STATIONARY * min(max(last), max(decrease, 0.0))


def grids(checked: Sequence[PropertyClaim], findings: Sequence[FlowRun]) -> list[Grid]:
    """The paper's table with our verdicts, all measured numbers, and statistics of each flow."""
    measured = grid_of("The worst that was seen", MEASURED, checked)
    return [_main(checked), measured, grid_of("Along each flow", ALONG, findings)]


def _main(checked: Sequence[PropertyClaim]) -> Grid:
    rows = grouped((claim.label, f"{_yes_no(claim)}: {claim.verdict}") for claim in checked)
    lines = tuple((label, *texts) for label, texts in rows.items())
    names = dict.fromkeys(claim.name for claim in checked)
    return Grid("What the theorems guarantee, and our verdict", ("clipping", *names), lines)


def summary(checked: Sequence[PropertyClaim]) -> str:
    """The number of claims with each verdict, and a list of those that fail."""
    failed = ", ".join(f"{c.label}: {c.name}" for c in checked if c.verdict == FAILS)
    parts = tally((claim.verdict for claim in checked), WORDS)
    return f"{counted(len(checked), 'claim')}: {parts}{f' ({failed})' if failed else ''}."


def to_csv(checked: Sequence[PropertyClaim]) -> str:
    """One line per claim."""
    return grid_of("", IN_CSV, checked).csv


def _yes_no(claim: PropertyClaim) -> str:
    return "yes" if claim.guaranteed else "no"


MEASURED: dict[str, Callable[[PropertyClaim], str]] = {
    "clipping": lambda c: c.label,
    "property": lambda c: c.name,
    "paper": _yes_no,
    "worst seen": lambda c: f"{c.worst:.2g}",
    "of": lambda c: UNITS[c.name],
    "verdict": lambda c: c.verdict,
}
IN_CSV: dict[str, Callable[[PropertyClaim], str]] = {
    "clipping": lambda c: c.label,
    "property": lambda c: c.name,
    "published": _yes_no,
    "worst": lambda c: f"{c.worst:.6g}",
    "unit": lambda c: UNITS[c.name],
    "verdict": lambda c: c.verdict,
}
ALONG: dict[str, Callable[[FlowRun], str]] = {
    "clipping": lambda f: f.label,
    "seed": lambda f: "by hand" if f.seed is None else str(f.seed),
    "steps": lambda f: str(len(f.flow.losses) - 1),
    "first loss": lambda f: f"{f.flow.losses[0]:.3g}",
    "last loss": lambda f: f"{f.flow.losses[-1]:.3g}",
    "risen in": lambda f: (
        f"{sum(c < -TOLERANCE for c in f.flow.cosines) / len(f.flow.cosines):.1%}"
    ),
    "clipped": lambda f: f"{sum(f.flow.clipped) / len(f.flow.clipped):.0%}",
    "least eigenvalue of H / |H|": lambda f: f"{min(k.eigenvalue for k in f.flow.unclipped):.1g}",
    "largest imaginary part / |M|": lambda f: f"{max(k.imaginary for k in f.flow.kernels):.1g}",
    "noise, lr": lambda f: f"{f.noise[0]:.2g}",
    f"noise, lr/{FINER}": lambda f: f"{f.noise[1]:.2g}",
}
"""Grids by column: of the paper's claims, on the page and as CSV, and of flows."""
