"""The checks of audited code that need no attack, in the order in which they run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dpbench.audit.code.audited import Audited, StoppedEarly
from dpbench.audit.code.checks.batches import (
    dependence,
    empty_batch,
    generators,
    releases,
    sampling,
)
from dpbench.audit.code.checks.exact import bits, buffers, initial_parameters, skipped_steps
from dpbench.audit.code.checks.noise import independence, law, scale
from dpbench.audit.code.checks.sensitivity import (
    additivity,
    carry_over,
    real_batch_size,
    sensitivity,
)
from dpbench.audit.code.task import Finding, skipped
from dpbench.runs.records.epsilon import REFUTED


class Check(NamedTuple):
    """A check, its name, and the kind of code that it is for, "" for all."""

    name: str
    of: Callable[[Any], Finding]
    kind: str = ""


REAL_SIZE = Check("real batch size", real_batch_size, "step")
"""The first check: others hear sums in the right units only if they know what it finds."""

CHECKS = (
    REAL_SIZE,
    Check("sensitivity", sensitivity),
    Check("parts of a batch", additivity),
    Check("empty batch", empty_batch, "step"),
    Check("reset between steps", carry_over, "step"),
    Check("noise scale", scale),
    Check("noise independence", independence),
    Check("noise law", law),
    Check("bits", bits),
    Check("buffers", buffers),
    Check("skipped steps", skipped_steps),
    Check("initial parameters", initial_parameters, "training"),
    Check("releases", releases, "training"),
    Check("sampling", sampling, "training"),
    Check("independence of batches", dependence, "training"),
    Check("generators", generators, "training"),
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
