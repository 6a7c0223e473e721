"""Parses the arguments of a command line as overrides, by Hydra's grammar, with some restrictions.

A command may come from somebody else, so interpolations reach nothing outside the configuration
but what `${oc.env:NAME}` spells out: see `dpbench.config.yaml_files`.
"""

import functools
import itertools
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, Quote, RangeSweep, Transformer
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin

from dpbench.runs.config import literals, search_path
from dpbench.runs.config.space import Choices, Interval, Range
from dpbench.runs.config.yaml_files import MAX_DEPTH, AddedFolder, refuse_resolvers
from dpbench.system.errors import UserError, first_line
from dpbench.system.paths import conf_folder, option_folders
from dpbench.system.validate import MAX_QUOTED, quoted, shown

MAX_LENGTH = 20_000
"""The most characters of an override: the grammar's parser is slow."""

MAX_RUNS = 10_000
"""The most runs of a sweep, and values of a range."""

PROVIDER = "dpbench"
"""The provider under which Hydra's search path lists the folders beside conf/."""

INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*\$\{")
"""An interpolation in a parsed text: after an odd number of backslashes it is only text."""

KEY = re.compile(r"[~+]*[\w./@$-]*", re.ASCII)

OF_PARSER = re.compile("Lexer|mismatched|extraneous|missing|no viable|token|Error parsing")
"""How Hydra's messages about an override begin that its parser makes."""

MAY_NAME_VARIABLES = ("data_dir", "results_dir", "tracker")

INSTEAD = (
    "only hydra.searchpath=[DIR] is, and --config-dir DIR is the same; launcher=, jobs=, run -m, "
    "dpbench search, results_dir= and tracker= are in the place of the others"
)
"""What does here what keys of Hydra's own do."""

BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}


class AddedFolders(SearchPathPlugin):
    """Makes Hydra search the folders of studies, plug-ins and the command line, after conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in _beside_conf():
            search_path.append(PROVIDER, folder)


def _beside_conf() -> list[str]:
    added = [f"{AddedFolder.scheme()}://{folder}" for folder, _ in search_path.added_folders()]
    return [*(f"{search_path.FILE}{folder}" for folder in option_folders()[1:]), *added]


@contextmanager
def grammar() -> Iterator[None]:
    """Initialises Hydra to parse and compose; may be nested."""
    if _is_initialized():
        yield
        return
    search_path.check_folders(search_path.added_folders())
    if AddedFolders not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(AddedFolders)
        Plugins.instance().register(AddedFolder)
    with hydra.initialize_config_dir(str(conf_folder().absolute()), version_base="1.3"):
        yield


def _is_initialized() -> bool:
    instance = GlobalHydra.instance()
    if not instance.is_initialized():
        return False
    searched = instance.config_loader().get_search_path().get_path()
    return [part.path for part in searched if part.provider == PROVIDER] == _beside_conf()


def parse(overrides: list[str]) -> list[Override]:
    """The overrides of a command line; UserError for one that cannot be parsed."""
    with grammar():
        loader = GlobalHydra.instance().config_loader()
        return [replace(_parse(text), config_loader=loader) for text in overrides]


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> Override:
    depths = itertools.accumulate(BRACKETS.get(letter, 0) for letter in text)
    if len(text) > MAX_LENGTH or max(depths, default=0) > MAX_DEPTH:
        raise UserError(f"{quoted(text)} is too long, or nested too deeply, for an override.")
    if text.startswith("-"):
        raise UserError(f"{quoted(text)} is not KEY=VALUE; dpbench run -m makes sweeps.")
    if re.fullmatch(r"[\w.]*", text):
        raise UserError(
            f"an override must be KEY=VALUE, got {quoted(text)}: write for instance dataset=adult, "
            "without spaces."
        )
    override = _parsed(OverridesParser.create(), text)
    if _may_interpolate(override):
        _refuse_resolvers(text)
    key = override.key_or_group
    if override.package is not None:
        plain = text.replace(f"@{override.package}", "", 1)
        raise UserError(
            f"{shown(text)} is refused: a group has one place, so write {shown(plain)}."
        )
    if re.match(r"hydra\b", key) and key != search_path.KEY:
        raise UserError(f"{key} is not supported here: {INSTEAD}.")
    return override


def _parsed(parser: OverridesParser, text: str) -> Override:
    """An override by Hydra's grammar, and with what that grammar lacks; see `literals`."""
    key, equals, value = text.partition("=")
    try:
        ready, keys = literals.prepared(
            value, lambda word: parser.parse_rule(word, "primitive").text
        )
        (override,) = parser.parse_overrides([f"{key}{equals}{ready}"])
    except (HydraException, ValueError) as error:
        _refuse_resolvers(text)
        raise UserError(
            f"an override must be KEY=VALUE, got {quoted(text)}: {_why(key, value, error)}"
        ) from error
    if not keys:
        return override
    override._value = literals.restored(override._value, keys)
    override.input_line = text
    if override.key_or_group.split(".")[0] == "table":
        raise UserError(f"{quoted(text)} is refused: write it in the file of a table.")
    return override


def _refuse_resolvers(text: str) -> None:
    """UserError for a call of a resolver, but for a variable of the environment in a setting that
    is in no digest."""
    part = text.partition("=")[0].lstrip("+").partition(".")[0]
    refuse_resolvers(text, environment=part in MAY_NAME_VARIABLES)


def _may_interpolate(override: Override) -> bool:
    """Whether a value is not certain to be read as it is."""
    if override.is_sweep_override() or override.key_or_group.split(".")[0] == "table":
        return True  # read again later
    return any(map(INTERPOLATION.search, literals.texts_in(override.value())))


def _why(key: str, value: str, error: BaseException) -> str:
    """Why an override could not be parsed, in words of ours where Hydra's are those of a parser."""
    why = sentence(error)
    if not KEY.fullmatch(key):
        return (
            "a key has letters, digits, dots and _, and others only within a mapping, as in "
            "'KEY={\"a b\":VALUE}'."
        )
    if not OF_PARSER.match(why):
        return f"{why}."
    way = f"{key}={literals.in_quotes(value, Quote.double)}"
    if value[:1] in ("", *"'\"[{") or len(value) > MAX_QUOTED or not value.isprintable():
        way = 'dataset.separator=";"'
    return f"quote a value with such characters twice, as in {shlex.quote(way)}."


def sentence(error: BaseException) -> str:
    """The first line of an error's message, as the beginning of a sentence."""
    return " ".join(first_line(error).split()).removesuffix(":")


def expand(overrides: list[str]) -> list[list[str]]:
    """Every combination of a sweep: `a=1,2 b=3` is [a=1, b=3] and [a=2, b=3]. Raises UserError for
    no values, and for more than MAX_RUNS combinations."""
    choices = [
        [f"{override.get_key_element()}={value}" for value in _values(override)]
        if override.is_sweep_override()
        else [str(override.input_line)]
        for override in parse(overrides)
    ]
    if (count := math.prod(map(len, choices))) > MAX_RUNS:
        raise UserError(f"a sweep has at most {MAX_RUNS} runs, and this one has {count}.")
    return [list(combination) for combination in itertools.product(*choices)]


def short_names(runs: Sequence[Sequence[str]]) -> list[str]:
    """A short name for each of several runs, by which progress and refusals tell them apart: the
    overrides that not all of them have."""
    common = set.intersection(*map(set, runs)) if runs else set()
    return [shlex.join(o for o in run if o not in common) or "run" for run in runs]


@contextmanager
def naming_run(runs: Sequence[Sequence[str]], number: int) -> Iterator[None]:
    """UserErrors name the run of the sweep that they are about."""
    try:
        yield
    except UserError as reason:
        if len(runs) == 1:
            raise
        raise UserError(f"{short_names(runs)[number]}: {reason}") from reason


def swept_keys(overrides: list[str]) -> list[str]:
    """The keys that have several values in a sweep."""
    return [o.get_key_element() for o in parse(overrides) if o.is_sweep_override()]


def _values(override: Override) -> list[str]:
    if override.is_interval_sweep():
        raise UserError(f"{override.input_line} is an interval: use dpbench search.")
    sweep = override.value()
    if isinstance(sweep, RangeSweep) and _length(sweep) > MAX_RUNS:
        raise UserError(f"{override.input_line} has more than {MAX_RUNS} values.")
    try:
        with grammar():
            values = [str(text) for text in override.sweep_iterator(_as_text)]
    except (HydraException, ValueError) as error:
        raise UserError(f"{override.input_line} cannot be swept: {sentence(error)}") from error
    if not values:
        raise UserError(f"{override.input_line} has no values.")
    return values


def _as_text(value: Any) -> str:
    """A value of a sweep as text: as Hydra writes it, if it can."""
    if literals.has_odd_keys(value):
        return str(literals.literal(Override._convert_value(value)))
    return Transformer.str(value)


def _length(sweep: RangeSweep) -> float:
    start, stop, step = (float(cast(float, end)) for end in (sweep.start, sweep.stop, sweep.step))
    if step == 0 or not math.isfinite(start + stop + step):
        return math.inf
    return max(0.0, (stop - start) / step)


def split_ranges(overrides: list[str]) -> tuple[list[Range], list[str]]:
    """The ranges among overrides, sorted by key, and the other overrides.

    A range in Hydra's grammar is `a=1,2`, `a=choice(1,2)`, `a=range(1,5)`, `a=glob(*)`,
    `a=interval(0,1)`, `a=tag(log,interval(1e-3,1))` or `a=int(interval(1,8))`.
    """
    parsed = parse(overrides)
    ranges = [_range(override) for override in parsed if override.is_sweep_override()]
    fixed = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
    return sorted(ranges, key=lambda range_: range_.key), fixed


def _range(override: Override) -> Range:
    key, sweep = override.get_key_element(), override.value()
    tags = frozenset(getattr(sweep, "tags", ()))
    if isinstance(sweep, IntervalSweep):
        return Interval(key, cast(float, sweep.start), cast(float, sweep.end), tags)
    # Sorted, because Hydra's shuffle(...) is not seeded.
    return Choices(key, tuple(sorted(set(_values(override)))), tags)
