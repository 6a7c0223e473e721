"""From the words of a command line to overrides, by Hydra's grammar, and what of it is refused.

Somebody else's command may hold them, so an interpolation reaches nothing outside of the
configuration: `${epochs}` is another setting, and `${oc.env:HOME}` would be this machine's.
"""

import itertools
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from dpbench.config.space import Choices, Interval, Range
from dpbench.errors import UserError
from dpbench.paths import conf_folder
from dpbench.validate import quoted

LONGEST, DEEPEST = 20_000, 20
"""Characters of an override and brackets within brackets: the grammar's parser takes its time."""

MOST_RUNS = 10_000
"""Of a sweep, and values of a range."""

RESOLVER = re.compile(r"\$\{[^{}]*:")

BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}


@contextmanager
def grammar() -> Iterator[None]:
    """Hydra ready to parse and compose, started once where one use is part of another."""
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with hydra.initialize_config_dir(str(conf_folder().absolute()), version_base="1.3"):
        yield


def parse(overrides: list[str]) -> list[Override]:
    """What each word says; UserError, with the culprit, for one that says nothing."""
    with grammar():
        parser = OverridesParser.create(GlobalHydra.instance().config_loader())
        return [_parsed(parser, text) for text in overrides]


def _parsed(parser: OverridesParser, text: str) -> Override:
    if len(text) > LONGEST or _depth(text) > DEEPEST:
        raise UserError(f"{quoted(text)} is too long, or nested too deeply, for an override.")
    if RESOLVER.search(text):
        raise UserError(
            f"{quoted(text)} is refused: an interpolation may name another setting, as "
            "${epochs}, and call nothing."
        )
    try:
        (override,) = parser.parse_overrides([text])
    except (HydraException, ValueError) as error:
        why = sentence(error)
        raise UserError(
            f"an override reads KEY=VALUE, and {quoted(text)} does not: {why}"
        ) from error
    if re.match(r"hydra\b", override.key_or_group):
        raise UserError(
            f"{override.key_or_group} is not read here: results_dir= says where files go, run -m "
            "with jobs= or launcher= makes several runs, and dpbench search searches."
        )
    return override


def _depth(text: str) -> int:
    return max(itertools.accumulate(BRACKETS.get(letter, 0) for letter in text), default=0)


def sentence(error: BaseException) -> str:
    """The first line of what an error says."""
    return " ".join(str(error).split("\n")[0].split()).removesuffix(":")


def expand(overrides: list[str]) -> list[list[str]]:
    """Every combination of a sweep: `a=1,2 b=3` is [a=1, b=3] and [a=2, b=3].

    Raises UserError for none, and for more than MOST_RUNS.
    """
    choices = [
        [f"{one.get_key_element()}={value}" for value in _values(one)]
        if one.is_sweep_override()
        else [str(one.input_line)]
        for one in parse(overrides)
    ]
    if (count := math.prod(map(len, choices))) > MOST_RUNS:
        raise UserError(f"a sweep has at most {MOST_RUNS} runs, and this one {count}.")
    return [list(combination) for combination in itertools.product(*choices)]


def _values(override: Override) -> list[str]:
    """The values of a sweep, as they are written; UserError for none, and for too many."""
    if override.is_interval_sweep():
        raise UserError(f"{override.input_line} is an interval: use dpbench search.")
    swept = override.value()
    if isinstance(swept, RangeSweep) and _length(swept) > MOST_RUNS:
        raise UserError(f"{override.input_line} has more than {MOST_RUNS} values.")
    try:
        with grammar():
            values = list(override.sweep_string_iterator())
    except (HydraException, ValueError) as error:
        raise UserError(f"{override.input_line} cannot be swept: {sentence(error)}") from error
    if not values:
        raise UserError(f"{override.input_line} has no values.")
    return values


def _length(swept: RangeSweep) -> float:
    """How many values a range has, without making them."""
    start, stop, step = (float(cast(float, end)) for end in (swept.start, swept.stop, swept.step))
    if step == 0 or not math.isfinite(start + stop + step):
        return math.inf
    return max(0.0, (stop - start) / step)


def split_ranges(overrides: list[str]) -> tuple[list[Range], list[str]]:
    """The ranges among overrides, in the order of their names, and the other overrides.

    A range is what Hydra's grammar knows: `a=1,2`, `a=choice(1,2)`, `a=range(1,5)`, `a=glob(*)`,
    `a=interval(0,1)`, `a=tag(log,interval(1e-3,1))`, `a=int(interval(1,8))`.
    """
    parsed = parse(overrides)
    swept = [_range(override) for override in parsed if override.is_sweep_override()]
    plain = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
    return sorted(swept, key=lambda one: one.key), plain


def _range(override: Override) -> Range:
    key, swept = override.get_key_element(), override.value()
    tags = frozenset(getattr(swept, "tags", ()))
    if isinstance(swept, IntervalSweep):
        return Interval(key, cast(float, swept.start), cast(float, swept.end), tags)
    # Sorted, because shuffle(...) draws from no seed of ours.
    return Choices(key, tuple(sorted(set(_values(override)))), tags)
