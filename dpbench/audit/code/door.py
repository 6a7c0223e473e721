"""The way in: from the name of a factory and what it claims to a report."""

import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from dpbench.audit.audit import Audit
from dpbench.audit.code.attacks import attack
from dpbench.audit.code.audited import AuditedStep, AuditedTraining
from dpbench.audit.code.checks import checks_of, findings
from dpbench.audit.code.examples import Examples, MadeUp, given
from dpbench.audit.code.finding import NOTHING, Finding, refuted
from dpbench.audit.code.raised import errors_told
from dpbench.audit.code.report import Report
from dpbench.audit.code.task import Claim
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.privacy.accountants import pld
from dpbench.runs.records.epsilon import rounded_up
from dpbench.system.errors import UserError, first_line
from dpbench.system.files import check_replaceable, write_atomically
from dpbench.system.progress import counting
from dpbench.system.validate import (
    fraction,
    integer,
    key_values,
    number,
    path_of,
    positive,
    quoted,
    spelled_integer,
    spelled_number,
)

KINDS = {kind.kind: kind for kind in (AuditedStep, AuditedTraining)}
"""The two kinds of code, by the setting that names a factory."""

DEFAULTS = {
    **dict.fromkeys(KINDS, ""),
    "examples": "",
    "noise_multiplier": "1",
    "bound": "1",
    "sample_rate": "0.125",
    "steps": "40",
    "delta": "1e-5",
    "claim": "",
    "confidence": str(CONFIDENCE),
    "canaries": "4000",
    "seed": "0",
    "out": "audit.md",
}

MAX_CANARIES = 100_000

ROUNDING = 0.98
"""How much of our PLD an epsilon may be: other accountants have other grids."""


def is_of_code(arguments: list[str]) -> bool:
    """Whether the arguments of an audit name code of one's own."""
    return any(argument.partition("=")[0] in KINDS for argument in arguments)


def audit_code(arguments: list[str]) -> tuple[Report, Path]:
    """Audit the code that the arguments name, and write the page; its report and its path."""
    settings = key_values("audit", DEFAULTS, arguments)
    named = {kind: settings[kind] for kind in KINDS if settings[kind]}
    if len(named) > 1:
        raise UserError("step= and training= are two kinds of code: give one.")
    path = path_of("out", settings["out"], "file")
    check_replaceable(path)
    ((kind, name),) = named.items()
    command = shlex.join(["dpbench", "audit", *arguments])
    own = settings["examples"] and given(settings["examples"], loaded(settings["examples"]))
    report = report_of(kind, name, loaded(name), own or MadeUp(), settings, command)
    write_atomically(path, report.page.encode(), setting="out")
    return report, path


def report_of(
    kind: str,
    name: str,
    factory: Callable,
    examples: Examples,
    settings: Mapping[str, str],
    command: str,
) -> Report:
    """The report on a factory; UserError for a claim that is none, and for code that fails."""
    claim, given = claim_of(settings), settings["claim"]
    nominal = number("claim", spelled_number(given), least=0) if given else None
    confidence = fraction("confidence", spelled_number(settings["confidence"]))
    canaries = integer("canaries", spelled_integer(settings["canaries"]), 0, MAX_CANARIES)
    seed = integer("seed", spelled_integer(settings["seed"]), least=0)
    code = KINDS[kind](name, factory, claim, seed=seed, examples=examples)
    checks: dict[str, Finding] = {}
    if nominal is not None:
        checks["account"] = account(claim, nominal)
    with counting("checks", len(checks_of(kind))) as count:
        for check, finding in findings(code):
            checks[check] = finding
            count()
    attacked: Audit | None = None
    try:
        if canaries:
            attacked = attack(code, canaries, nominal, confidence, seed)
    except UserError as error:
        checks["attack"] = refuted(f"Under attack the code failed: {error}")
    return Report(name, kind, claim, checks, attacked, command)


def report_of_functions(
    factories: Mapping[str, Callable | str | None],
    examples: Callable | str | None,
    settings: Mapping[str, object],
) -> Report:
    """The report on the one factory that is given, with settings as on the command line."""
    named = [(kind, factory) for kind, factory in factories.items() if factory is not None]
    if len(named) != 1:
        raise UserError("give one factory: audit(step=...) or audit(training=...).")
    ((kind, of),) = named
    name, factory = named_function(kind, of)
    spelled = [f"{key}={value}" for key, value in settings.items()]
    command = shlex.join(["dpbench", "audit", f"{kind}={name}", *spelled])
    made = given(*named_function("examples", examples)) if examples else MadeUp()
    chosen = key_values("audit", DEFAULTS, spelled)
    return report_of(kind, name, factory, made, chosen, command)


def named_function(setting: str, function: Callable | str) -> tuple[str, Callable]:
    """The name of a function and itself, whichever is given; UserError for what is neither."""
    if isinstance(function, str):
        return function, loaded(function)
    if not callable(function):
        raise UserError(f"{setting}={quoted(function)} is no function: give one, or its name.")
    return f"{function.__module__}:{getattr(function, '__qualname__', setting)}", function


def claim_of(settings: Mapping[str, str]) -> Claim:
    """The claim that settings state."""
    return Claim(
        positive("noise_multiplier", spelled_number(settings["noise_multiplier"])),
        positive("bound", spelled_number(settings["bound"])),
        fraction("sample_rate", spelled_number(settings["sample_rate"]), one=True),
        integer("steps", spelled_integer(settings["steps"])),
        fraction("delta", spelled_number(settings["delta"])),
    )


def account(claim: Claim, nominal: float) -> Finding:
    """A given epsilon is that of the claimed settings."""
    exact = pld(claim.ledger(claim.sample_rate, claim.steps), claim.delta)
    if nominal >= ROUNDING * exact or not math.isfinite(exact):
        return NOTHING
    return refuted(
        f"The settings that are claimed have an epsilon of {rounded_up(exact, 3)} by PLD, which is "
        f"tight for them, and {nominal:g} is less."
    )


def loaded(name: str) -> Callable:
    """The factory `package.module:name`, found from the working directory too."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UserError(f"{name} names no factory: write package.module:factory.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with errors_told(name):
        found = _imported(name, module, attribute)
    if not callable(found):
        raise UserError(f"{name} is no function: name a factory.")
    return found


def _imported(name: str, module: str, attribute: str) -> Any:
    try:
        return attrgetter(attribute)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{name} cannot be imported ({first_line(error)}): start dpbench in the folder of its "
            "module, or install it beside dpbench."
        ) from error
