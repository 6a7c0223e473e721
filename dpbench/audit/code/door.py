"""The way in: from the name of a factory and what it claims to a report."""

import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from dpbench.audit.audit import AuditResult
from dpbench.audit.code.attacks import attack
from dpbench.audit.code.audited import AuditedStep, AuditedTraining
from dpbench.audit.code.checks import checks_of, findings
from dpbench.audit.code.examples import MadeUp, given
from dpbench.audit.code.report import CodeReport
from dpbench.audit.code.task import NOTHING, ClaimedDpsgd, Finding, refuted, reporting_errors
from dpbench.privacy.accountants import pld
from dpbench.runs.config.commands import CodeAuditCommand
from dpbench.runs.records.epsilon import rounded_up
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, first_line
from dpbench.system.files import check_replaceable, write_atomically
from dpbench.system.progress import counting
from dpbench.system.validate import quoted

KINDS = {kind.kind: kind for kind in (AuditedStep, AuditedTraining)}
"""The two kinds of code, by the setting that names a factory."""

ROUNDING = 0.98
"""How much of our PLD an epsilon may be: other accountants have other grids."""


def is_of_code(arguments: list[str]) -> bool:
    """Whether the arguments of an audit name code of one's own."""
    return any(argument.partition("=")[0] in KINDS for argument in arguments)


def audit_code(arguments: list[str]) -> tuple[CodeReport, Path]:
    """Audit the code that the arguments name, and write the page; its report and its path."""
    settings = read("audit", CodeAuditCommand, arguments)
    named = {kind: name for kind in KINDS if (name := getattr(settings, kind))}
    if len(named) > 1:
        raise UserError("step= and training= are two kinds of code: give one.")
    check_replaceable(path := settings.out)
    command = shlex.join(["dpbench", "audit", *arguments])
    report = report_of(*named.popitem(), settings.examples, settings, command)
    write_atomically(path, report.page.encode(), setting="out")
    return report, path


def report_of(
    kind: str,
    of: Callable | str,
    examples: Callable | str | None,
    settings: CodeAuditCommand,
    command: str,
) -> CodeReport:
    """The report on a factory; UserError for a claim that is none, and for code that fails."""
    name, factory = named_function(kind, of)
    made = given(*named_function("examples", examples)) if examples else MadeUp()
    claim = ClaimedDpsgd(
        **{field.name: getattr(settings, field.name) for field in fields(ClaimedDpsgd)}
    )
    code = KINDS[kind](name, factory, claim, seed=settings.seed, examples=made)
    checks: dict[str, Finding] = {}
    if settings.claim is not None:
        checks["account"] = account(claim, settings.claim)
    with counting("checks", len(checks_of(kind))) as count:
        for check, finding in findings(code):
            checks[check] = finding
            count()
    attacked: AuditResult | None = None
    try:
        if settings.canaries:
            asked = settings.canaries, settings.claim, settings.confidence, settings.seed
            attacked = attack(code, *asked)
    except UserError as error:
        checks["attack"] = refuted(f"Under attack the code failed: {error}")
    return CodeReport(name, kind, claim, checks, attacked, command)


def report_of_functions(
    factories: Mapping[str, Callable | str | None],
    examples: Callable | str | None,
    settings: Mapping[str, object],
) -> CodeReport:
    """The report on the one factory that is given, with settings as on the command line."""
    named = [(kind, factory) for kind, factory in factories.items() if factory is not None]
    if len(named) != 1:
        raise UserError("give one factory: audit(step=...) or audit(training=...).")
    ((kind, of),) = named
    name, _ = named_function(kind, of)
    spelled = [f"{key}={value}" for key, value in settings.items()]
    command = shlex.join(["dpbench", "audit", f"{kind}={name}", *spelled])
    return report_of(kind, of, examples, read("audit", CodeAuditCommand, spelled), command)


def named_function(setting: str, function: Callable | str) -> tuple[str, Callable]:
    """The name of a function and itself, whichever is given; UserError for what is neither."""
    if isinstance(function, str):
        return function, loaded(function)
    if not callable(function):
        raise UserError(f"{setting}={quoted(function)} is not a function: give one, or its name.")
    return f"{function.__module__}:{getattr(function, '__qualname__', setting)}", function


def account(claim: ClaimedDpsgd, nominal: float) -> Finding:
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
    with reporting_errors(name):
        try:
            found = attrgetter(attribute)(import_module(module))
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"{name} cannot be imported ({first_line(error)}): start dpbench in the folder of "
                "its module, or install it beside dpbench."
            ) from error
    if not callable(found):
        raise UserError(f"{name} is not a function: name a factory.")
    return found
