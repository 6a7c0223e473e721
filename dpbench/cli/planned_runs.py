"""`dpbench epsilon` of several runs: one line for each, as Markdown."""

from collections.abc import Iterator

from dpbench.config.overrides import expand, swept_keys
from dpbench.execution.prepare import prepare
from dpbench.mechanism.method import Inapplicable
from dpbench.privacy.statement import UPPER_BOUNDS
from dpbench.records.epsilon import Terms, epsilon_or_reason, marked, rounded_up
from dpbench.tables.grid import NO_VALUE, Grid
from dpbench.tables.markdown import grid_lines
from dpbench.training.plan import privacy_statement

HEAD = ("steps", "sampling rate", "noise multiplier", "epsilon (RDP)", "epsilon (PLD)", "delta")


def planned_runs(overrides: list[str]) -> str:
    """A line for each combination of a sweep, without training; UserError for an invalid one.

    A method that does not apply to a data set has the reason in its line.
    """
    keys = swept_keys(overrides)
    rows = tuple(tuple(_cells(run, keys)) for run in expand(overrides))
    return grid_lines(Grid("", (*keys, *HEAD), rows))


def _cells(overrides: list[str], keys: list[str]) -> Iterator[str]:
    values = {override.partition("=")[0]: override.partition("=")[2] for override in overrides}
    yield from (values[key] for key in keys)
    try:
        _, run, planned = prepare(overrides)
    except Inapplicable as reason:
        yield str(reason)
        return
    said = privacy_statement(run, planned)
    yield f"{said['steps']:,}"
    yield NO_VALUE if said["sample_rate"] is None else f"{said['sample_rate']:.4g}"
    yield f"{said['noise_multiplier']:.4g}"
    for accountant in UPPER_BOUNDS:
        epsilon = epsilon_or_reason(said, accountant)
        if not isinstance(epsilon, str):
            epsilon = marked(rounded_up(epsilon), said["guarantee"])
        yield epsilon
    yield Terms.of(said).text_of_delta
