"""`dpbench epsilon` on a terminal: what a person asks of an epsilon, instead of one JSON object; of
several runs one line for each."""

from collections.abc import Iterator, Mapping
from typing import Any

from dpbench.comparison.tables.grid import NO_VALUE, Grid, epsilon_text
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.privacy.statement import ACCOUNTANTS, UPPER_BOUNDS, Statement
from dpbench.runs.config.overrides import naming_run
from dpbench.runs.config.search_path import method_name
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.records.epsilon import (
    Terms,
    epsilon_or_reason,
    legend,
    percent_rounded_up,
    unspent,
)
from dpbench.runs.training.plan import privacy_statement
from dpbench.step.mechanism.method import Inapplicable

ATTACKS = {
    "membership_advantage": "advantage of telling whether an example was trained on",
    "true_positive_rate": "share found at one false positive in a thousand",
    "reconstruction": "probability of naming the right one of 10,000 values",
}

OTHER_ADJACENCIES = {"zero_out": "that leaves its place empty", "replace_one": "replaced"}

EPSILONS = tuple(f"epsilon ({ACCOUNTANTS[name].label})" for name in UPPER_BOUNDS)
HEAD = ("steps", "sampling rate", "noise multiplier", *EPSILONS, "delta")


def card(config: Mapping[str, Any], statement: Statement, more: Mapping[str, Any]) -> str:
    """The page of a planned run. more: epsilons of other adjacencies, and `attacks`, bounds of what
    they achieve; None without an epsilon."""
    choices, attacks = config["choices"], more["attacks"] or {}
    epsilons = Grid("", ("epsilon", "by"), tuple(_epsilons(statement, more)))
    bounds = [
        (text, percent_rounded_up(attacks[name])) for name, text in ATTACKS.items() if attacks
    ]
    title = f"{method_name(choices['method'])} on {choices['dataset']}, {choices['model']}"
    blocks: list[PageBlock] = [
        epsilons,
        f"**{statement['guarantee']}**: {statement['why']}",
        Grid("", ("an attack", "achieves at most"), tuple(bounds)) if bounds else "",
        [*_facts(statement), *filter(None, [unspent([(config, statement)])]), *statement["notes"]],
    ]
    return Page(title, blocks).markdown


def _epsilons(statement: Statement, more: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, accountant in ACCOUNTANTS.items():
        shown = epsilon_text(epsilon_or_reason(statement, name), statement["guarantee"])
        yield shown, accountant.description
    for kind, text in OTHER_ADJACENCIES.items():
        if more[kind] is not None:
            yield (
                epsilon_text(more[kind], statement["guarantee"]),
                f"PLD, for one {statement['unit']} {text}",
            )


def _facts(statement: Statement) -> Iterator[str]:
    yield Terms.of(statement).text(("delta", "unit", "zero_out", "batches"))
    rate = statement["sample_rate"]
    sampled = "" if rate is None else f", sampling rate {rate:.4g}"
    multiplier, steps = statement["noise_multiplier"], statement["steps"]
    yield f"noise multiplier {multiplier:.4g}, {steps:,} steps{sampled}"


def planned_runs(keys: list[str], runs: list[list[str]], configs: list[RunConfig]) -> str:
    """A line for each combination of a sweep, and the terms of its epsilons, without training.

    keys: those of several values; runs: the overrides of each combination, and configs: its
    configuration. A method that does not apply to a data set has the reason in its line.
    """
    stated = []
    for number, config in enumerate(configs):
        with naming_run(runs, number):
            stated.append(_stated(config))
    planned = [(c.plain, s) for c, s in zip(configs, stated, strict=True) if not isinstance(s, str)]
    rows = (
        (*_values(run, keys), *([statement] if isinstance(statement, str) else _cells(statement)))
        for run, statement in zip(runs, stated, strict=True)
    )
    terms = legend(statement for _, statement in planned), unspent(planned)
    return Page("", [Grid("", (*keys, *HEAD), tuple(rows)), *terms]).markdown.rstrip()


def _values(overrides: list[str], keys: list[str]) -> list[str]:
    values = {override.partition("=")[0]: override.partition("=")[2] for override in overrides}
    return [values[key] for key in keys]


def _stated(config: RunConfig) -> Statement | str:
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
