"""The checks of audited code that need no attack, in the order in which they run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dpbench.audit.code.audited import Audited, StoppedEarly
from dpbench.audit.code.checks import batches, exact, noise, sensitivity
from dpbench.audit.code.task import Finding, skipped
from dpbench.runs.records.epsilon import REFUTED


class Check(NamedTuple):
    """A check, its name, and the kind of code that it is for, "" for all."""

    name: str
    of: Callable[[Any], Finding]
    kind: str = ""


REAL_SIZE = Check("real batch size", sensitivity.real_batch_size, "step")
"""The first check: others hear sums in the right units only if they know what it finds."""

CHECKS = (
    REAL_SIZE,
    Check("sensitivity", sensitivity.sensitivity),
    Check("parts of a batch", sensitivity.additivity),
    Check("empty batch", batches.empty_batch, "step"),
    Check("reset between steps", sensitivity.carry_over, "step"),
    Check("noise scale", noise.scale),
    Check("noise independence", noise.independence),
    Check("noise law", noise.law),
    Check("bits", exact.bits),
    Check("buffers", exact.buffers),
    Check("skipped steps", exact.skipped_steps),
    Check("initial parameters", exact.initial_parameters, "training"),
    Check("releases", batches.releases, "training"),
    Check("sampling", batches.sampling, "training"),
    Check("independence of batches", batches.dependence, "training"),
    Check("generators", batches.generators, "training"),
)


def checks_of(kind: str) -> tuple[Check, ...]:
    """The checks for this kind of code."""
    return tuple(check for check in CHECKS if check.kind in ("", kind))


def findings(code: Audited) -> Iterator[tuple[str, Finding]]:
    """What each check finds, by its name, if the training takes the steps that it asks for."""
    for check in checks_of(code.kind):
        try:
            found = check.of(code)
        except StoppedEarly as error:
            found = skipped(f"{error}")
        if check is REAL_SIZE and found.verdict == REFUTED:
            code = replace(code, by_real_size=True)
        yield check.name, found
