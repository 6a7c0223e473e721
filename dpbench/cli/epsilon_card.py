"""`dpbench epsilon` on a terminal: what a person asks of an epsilon, instead of one JSON object."""

from collections.abc import Iterator, Mapping
from typing import Any

from dpbench.comparison.tables.grid import Grid, epsilon_text
from dpbench.comparison.tables.page import Block, Page
from dpbench.privacy.statement import ACCOUNTANTS, Statement
from dpbench.runs.config.names import method_name
from dpbench.runs.records.epsilon import Terms, epsilon_or_reason, percent_rounded_up

ATTACKS = {
    "membership_advantage": "advantage of telling whether an example was trained on",
    "true_positive_rate": "share found at one false positive in a thousand",
    "reconstruction": "probability of naming the right one of 10,000 values",
}

OTHER_ADJACENCIES = {"zero_out": "that leaves its place empty", "replace_one": "replaced"}


def card(config: Mapping[str, Any], statement: Statement, more: Mapping[str, Any]) -> str:
    """The page of a planned run. more: epsilons of other adjacencies, and `attacks`, bounds of what
    they achieve; None without an epsilon."""
    choices, attacks = config["choices"], more["attacks"] or {}
    epsilons = Grid("", ("epsilon", "by"), tuple(_epsilons(statement, more)))
    bounds = [
        (text, percent_rounded_up(attacks[name])) for name, text in ATTACKS.items() if attacks
    ]
    title = f"{method_name(choices['method'])} on {choices['dataset']}, {choices['model']}"
    blocks: list[Block] = [
        epsilons,
        f"**{statement['guarantee']}**: {statement['why']}",
        Grid("", ("an attack", "achieves at most"), tuple(bounds)) if bounds else "",
        [*_facts(statement), *statement["notes"]],
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
