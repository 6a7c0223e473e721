"""What is asked of a search, checked before anything runs."""

import hashlib
import itertools
import re
import shlex
from dataclasses import dataclass

from dpbench.config.compose import compose, groups
from dpbench.config.overrides import split_ranges
from dpbench.config.settings import is_scientific, key_of
from dpbench.config.space import Choices, Range, Space
from dpbench.errors import UserError, nearest
from dpbench.execution.prepare import check_execution
from dpbench.records.digest import digest
from dpbench.search.samplers import SAMPLERS, check_installed
from dpbench.search.selection import RULES
from dpbench.validate import integer, one_of, quoted, spelled_integer

DEFAULTS = {"N": "20", "by": "random", "rule": "best_validation", "draw": "0", "name": ""}
"""The settings of a search itself, and their defaults."""

MOST_TRIALS = 100_000
"""Beyond any budget; a search keeps all of its trials in memory."""

SHARE = "validation=0.2"
"""Held out of the training examples unless the user says how many."""

LEFT_OUT = ("validation", "again", "jobs", "seed")
"""Settings of a search that the chosen run does not take over."""


@dataclass(frozen=True)
class SearchRequest:
    """A search: the space, and how many trials of it, proposed by which sampler from which draw.

    fixed: the overrides of every run, a validation split among them; seeds: each trial is one run
    of each; config: the composed configuration of one of the runs.
    """

    space: Space
    fixed: tuple[str, ...]
    seeds: tuple[str, ...]
    count: int
    by: str
    rule: str
    draw: int
    name: str
    config: dict

    @property
    def settings(self) -> list[str]:
        """What of `fixed` makes the runs what they are."""
        return [o for o in self.fixed if is_scientific(o) or key_of(o) == "table"]

    def runs(self, overrides: list[str]) -> list[list[str]]:
        """The overrides of a trial's runs, seed by seed."""
        return [[*self.fixed, *overrides, f"seed={seed}"] for seed in self.seeds]

    def command(self, overrides: tuple[str, ...]) -> str:
        """A trial's settings as a command: all training examples, and tested on the test set."""
        kept = [o for o in self.fixed if key_of(o) not in LEFT_OUT]
        several = ["-m"] if len(self.seeds) > 1 else []
        seeds = f"seed={','.join(self.seeds)}"
        return shlex.join(["dpbench", "run", *several, *kept, *overrides, seeds])


def parse(arguments: list[str]) -> SearchRequest:
    """The request of a command line; UserError for what can be refused before any run."""
    settings = DEFAULTS | dict(_pair(a) for a in arguments if key_of(a) in DEFAULTS)
    ranges, fixed = split_ranges([a for a in arguments if key_of(a) not in DEFAULTS])
    _check_search_settings(settings)
    searched = tuple(one for one in ranges if one.key != "seed")
    _check_ranges(searched)
    if "validation" not in map(key_of, fixed):
        fixed = [*fixed, SHARE]
    config = _checked(searched, fixed)
    seeds = _seeds(ranges, config)
    space = Space(searched)
    identity = [settings["by"], settings["rule"], settings["draw"], *seeds, digest(config)]
    identity += [f"{one.key}={one.text}" for one in searched]
    return SearchRequest(
        space=space,
        fixed=tuple(o for o in fixed if key_of(o) != "seed"),
        seeds=seeds,
        count=int(min(int(settings["N"]), space.size)),
        by=settings["by"],
        rule=settings["rule"],
        draw=int(settings["draw"]),
        name=settings["name"] or f"{config['choices']['dataset']}-{_short(identity)}",
        config=config,
    )


def _pair(argument: str) -> tuple[str, str]:
    key, _, value = argument.partition("=")
    if not value:
        raise UserError(f"{key} needs a value: {key}=VALUE.")
    return key, value


def _short(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _check_search_settings(settings: dict[str, str]) -> None:
    integer("N", spelled_integer(settings["N"]), most=MOST_TRIALS)
    integer("draw", spelled_integer(settings["draw"]), least=0)
    one_of("by", settings["by"], SAMPLERS)
    one_of("rule", settings["rule"], RULES)
    if settings["name"] and not re.fullmatch(r"\w[\w.-]{,99}", settings["name"]):
        raise UserError(
            f"name must be up to 100 letters, digits, '.', '_' and '-', "
            f"got {quoted(settings['name'])}."
        )
    check_installed(settings["by"])


def _check_ranges(ranges: tuple[Range, ...]) -> None:
    if not ranges:
        raise UserError(
            "search needs a range: batch_size=64,256 or optimizer.lr=tag(log,interval(1e-3,1))."
        )
    for one in ranges:
        if sum(other.key == one.key for other in ranges) > 1:
            raise UserError(f"{one.key} has two ranges: give one with all of its values.")
        if key_of(one.key) == "validation":
            raise UserError("validation must be one share for all trials; give a single number.")
        if not is_scientific(one.key):
            raise UserError(
                f"{one.key} cannot be searched: {nearest(key_of(one.key), _searchable())}"
            )


def _searchable() -> list[str]:
    return [key for key in compose([]) if is_scientific(key) and key != "validation"]


def _checked(ranges: tuple[Range, ...], fixed: list[str]) -> dict:
    """The configuration of a run; UserError for names that no trial could have.

    A setting need not be there in every trial: method.bound=... is none of method=sgd.
    """
    chosen = [one for one in ranges if one.key in groups()]
    others = [f"{one.key}={one.first}" for one in ranges if one not in chosen]
    options = [[f"{one.key}={value}" for value in _values(one)] for one in chosen]
    for option in itertools.chain(*options):
        compose([option])
    refused: list[UserError] = []
    for combination in itertools.product(*options):
        try:
            config = compose([*fixed, *combination, *others])
        except UserError as error:
            refused.append(error)
            continue
        check_execution(config)
        if config["validation"] is None:
            raise UserError(f"a search chooses by a validation split: set a share, as {SHARE}.")
        return config
    raise refused[0]


def _values(one: Range) -> tuple[str, ...]:
    """The options of a group; UserError where somebody gives an interval of them."""
    if isinstance(one, Choices):
        return one.values
    raise UserError(f"{one.key} has no interval of options: write {one.key}=A,B.")


def _seeds(ranges: list[Range], config: dict) -> tuple[str, ...]:
    """The seeds of every trial: repetitions, and no part of the space."""
    for one in ranges:
        if one.key == "seed":
            if not isinstance(one, Choices) or not all(v.isdecimal() for v in one.values):
                raise UserError(f"seed={one.text} must be whole numbers from 0: seed=0,1,2.")
            return tuple(sorted(one.values, key=int))
    return (str(config["seed"]),)
