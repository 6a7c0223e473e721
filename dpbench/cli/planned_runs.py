"""`dpbench epsilon` of several runs: one line for each, as Markdown."""

from collections.abc import Iterator

from dpbench.comparison.tables.grid import NO_VALUE, Grid, epsilon_text
from dpbench.comparison.tables.page import Page
from dpbench.privacy.statement import ACCOUNTANTS, UPPER_BOUNDS, Statement
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.records.epsilon import Terms, epsilon_or_reason, legend
from dpbench.runs.training.plan import privacy_statement
from dpbench.step.mechanism.method import Inapplicable

EPSILONS = tuple(f"epsilon ({ACCOUNTANTS[name].label})" for name in UPPER_BOUNDS)
HEAD = ("steps", "sampling rate", "noise multiplier", *EPSILONS, "delta")


def planned_runs(keys: list[str], runs: list[list[str]], configs: list[RunConfig]) -> str:
    """A line for each combination of a sweep, and the terms of its epsilons, without training.

    keys: those of several values; runs: the overrides of each combination, and configs: its
    configuration. A method that does not apply to a data set has the reason in its line.
    """
    stated = [_stated(config) for config in configs]
    rows = (
        (*_values(run, keys), *([statement] if isinstance(statement, str) else _cells(statement)))
        for run, statement in zip(runs, stated, strict=True)
    )
    terms = legend(statement for statement in stated if not isinstance(statement, str))
    return Page("", [Grid("", (*keys, *HEAD), tuple(rows)), terms]).markdown.rstrip()


def _values(overrides: list[str], keys: list[str]) -> list[str]:
    values = {override.partition("=")[0]: override.partition("=")[2] for override in overrides}
    return [values[key] for key in keys]


def _stated(config: RunConfig) -> Statement | str:
    """The privacy statement of a planned run, or why its method does not apply."""
    try:
        run, planned = prepare(config)
    except Inapplicable as reason:
        return str(reason)
    return privacy_statement(run, planned)


def _cells(statement: Statement) -> Iterator[str]:
    yield f"{statement['steps']:,}"
    yield NO_VALUE if statement["sample_rate"] is None else f"{statement['sample_rate']:.4g}"
    yield f"{statement['noise_multiplier']:.4g}"
    for accountant in UPPER_BOUNDS:
        yield epsilon_text(epsilon_or_reason(statement, accountant), statement["guarantee"])
    yield Terms.of(statement).text_of_delta
