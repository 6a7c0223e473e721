"""`dpbench recipe`: settings to start from without a search, by what the suite's searches chose.

Of the data only the public numbers of examples and inputs are used, so a recipe costs no epsilon.
"""

import math
import shlex
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page
from dpbench.learning.data.derive.users import units_of
from dpbench.learning.data.probe import probe
from dpbench.learning.models.architecture import LOSSES
from dpbench.runs.config.commands import RecipeCommand
from dpbench.runs.config.search_path import KEY, as_flags
from dpbench.runs.config.settings import key_of, split_settings
from dpbench.runs.execution.prepare import prepare, run_of
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.training.plan import check_parts
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError

STEPS = 200
"""Of a run: more steps of smaller batches are noisier, at the same cost."""

BOUND = 0.5
"""Below most gradients' norms, where only the product of bound and learning rate matters."""

LENGTH = 2.0
"""The product of bound and learning rate, where noise allows it. In eleven searches of dpsgd
(frontier_table1, 5, 6, 7 and 8) the trials within 1.5 points of the best have 0.2 to 3.5 in the
geometric mean."""

WALK = 0.5
"""The largest standard deviation of what the noise of a run adds to a weight: that of the same
trials is 0.5 and 0.8 at epsilon 0.1, and at most 0.15 elsewhere."""

PASSES = 4.0
"""The time of a private pass, with norms, sums and noise, in plain ones."""

TIMED = 256
"""The examples of a plain pass that is timed."""

KNOWN = ("method=dpsgd", "optimizer=sgd")
"""What the searches behind the rules were of."""


class Choice(NamedTuple):
    """A setting as it is written, and why it has this value."""

    setting: str
    why: str


PARTS = (
    Choice("method=dpsgd", "none is shown to be better at epsilon 1, 3 or 8 (`dpbench findings`)"),
    Choice("model=logistic", "few weights, so little noise; images and texts by `features=`"),
    Choice(f"method.bound={BOUND}", "clips nearly all gradients: then only bound times lr matters"),
)

SEARCH = (
    "No search: within the same epsilon one costs as much as a second run (`search private=true`), "
    "and no other is covered. docs/recipe.md says how far these settings are from those of 64 "
    "trials, on six data sets."
)


def recipe(arguments: list[str]) -> str:
    """The page of settings for data and a budget, with the command that trains by them."""
    own, given = split_settings("recipe", RecipeCommand, arguments)
    chosen = choices(given, own.minutes)
    words = [*(o for o in given if key_of(o) != KEY), *(c.setting for c in chosen)]
    command = shlex.join(["dpbench", "run", *words, *as_flags()])
    reasons = Grid("", ("setting", "why"), tuple((f"`{c.setting}`", c.why) for c in chosen))
    return Page("A recipe", [f"```sh\n{command}\n```", reasons, SEARCH]).markdown


def choices(given: Sequence[str], minutes: float) -> list[Choice]:
    """The settings besides those that are given, for training of so many minutes.

    Raises UserError for another method or optimizer than KNOWN, and for what a run refuses.
    """
    groups = [known.partition("=")[0] for known in KNOWN]
    if others := [each for each in given if key_of(each) in groups and each not in KNOWN]:
        raise UserError(f"recipe knows {' and '.join(KNOWN)} alone: leave {others[0]} out.")
    chosen = _besides(given, PARTS)
    run = run_of(_config(given, chosen))
    check_parts(run)  # before it is timed
    chosen += _besides(given, [*_delta(run), *_size(run, minutes)])
    return chosen + _besides(given, [_learning_rate(_config(given, chosen))])


def _besides(given: Sequence[str], choices: Sequence[Choice]) -> list[Choice]:
    keys = {key_of(setting) for setting in given}
    return [choice for choice in choices if key_of(choice.setting) not in keys]


def _config(given: Sequence[str], chosen: Sequence[Choice]) -> RunConfig:
    return run_config(["optimizer.lr=1", *(choice.setting for choice in chosen), *given])


def _delta(run: Run) -> list[Choice]:
    """The next power of ten that is at most 1/n, if the option's delta is above."""
    units = units_of(run.dataset, run.users)
    if run.privacy.delta <= 1 / units.number:
        return []
    why = f"at most 1/n: a larger one permits publishing one {units.name} of {units.number:,}"
    return [Choice(f"privacy.delta=1e-{math.ceil(math.log10(units.number))}", why)]


def _size(run: Run, minutes: float) -> list[Choice]:
    number = units_of(run.dataset, run.users).number
    affordable = 60 * minutes / (PASSES * _seconds_per_example(run) * run.dataset.train_size)
    epochs = max(1, min(STEPS, int(affordable)))
    return [
        Choice(f"epochs={epochs}", f"what {minutes:g} minutes allow, and at most {STEPS}"),
        Choice(f"batch_size={math.ceil(number * epochs / STEPS)}", f"{STEPS} steps"),
    ]


def _learning_rate(config: RunConfig) -> Choice:
    run, planned = prepare(config)
    walk = planned.noise_multiplier * math.sqrt(planned.steps) / run.batch_size
    length = min(LENGTH, WALK / walk)
    return Choice(
        f"optimizer.lr={length / config['method']['bound']:.3g}",
        f"bound times lr is {length:.2g}: {LENGTH:g}, or less where noise would move weights far",
    )


def _seconds_per_example(run: Run) -> float:
    """Of a plain pass forward and backward, on synthetic examples."""
    model = run.model.build(run.dataset.shape, run.dataset.classes)
    pair = probe(run.dataset, 1)
    inputs, targets = (
        part.repeat_interleave(TIMED // 2, 0) for part in (pair.inputs, pair.targets)
    )

    def seconds() -> float:
        start = perf_counter()
        LOSSES[run.dataset.task](model(inputs), targets).mean().backward()
        return perf_counter() - start

    return min(seconds() for _ in range(5)) / TIMED
