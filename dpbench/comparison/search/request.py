"""The request of a search, parsed from a command line and checked before anything runs."""

import hashlib
import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dpbench.comparison.search.samplers import check_installed
from dpbench.comparison.search.selection import RULES, SelectionRule
from dpbench.comparison.search.start import NONE, Start, started
from dpbench.privacy.private_selection import Repetitions
from dpbench.runs.config.commands import SearchCommand
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import split_ranges
from dpbench.runs.config.search_path import KEY, as_flags, groups
from dpbench.runs.config.settings import NAMED_GROUPS, is_scientific, key_of, leaves, split_settings
from dpbench.runs.config.space import (
    Choices,
    Configuration,
    Range,
    Space,
    override_texts,
    ranges_of,
    searchable,
    space_of,
)
from dpbench.runs.config.special_case import SpecialCase, special_case
from dpbench.runs.config.table_rules import numbers
from dpbench.runs.execution.attempt import configured
from dpbench.runs.execution.launcher import Failure
from dpbench.runs.execution.run_config import STALE, RunConfig, check_execution, run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.folder import SEARCH
from dpbench.runs.records.publish import without_seed_and_checksum
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import integer, one_of, quoted

PRIVATE = ("epsilon", "law", "trials", "shape")
"""The settings that only a private search has, for its epsilon and the number of its trials."""

OPEN = {"by", "rule", "start", "extend", "finalists", "final_seeds", "repeat"}
"""The settings that only a search without privacy has."""

PIECE = 0.25
"""What is added to a range, as a share of its width; and the trials there, as a share of N, unless
the user sets their number: the new part is searched as densely as the range."""

DEFAULT_VALIDATION = "validation=0.2"
"""The share of the training examples held out unless the user sets another."""

SCORE_NOISE = "score_noise_multiplier=10"
"""The noise of the scores of a private search unless the user sets another."""

DROPPED = (
    *("validation", "score_noise_multiplier", "save_model", "again", "jobs", "seed"),
    *("results_dir", "data_dir", KEY),
)
"""Settings of a search that the command of the chosen run leaves out; pages show no paths."""

OF_THE_METHOD = "method"
"""The space that is named as the method of the runs."""


@dataclass(frozen=True)
class SearchRequest:
    """A search: its options as given, its space, and the number of trials, which the space bounds.

    fixed: the overrides of all runs; seeds: a trial has one run for each; config: that of one run;
    identity: a digest of all that determines the search. repetitions: of a private one, which draws
    from `count` candidates. repeated: the name of the searches that it is one of.
    """

    options: SearchCommand
    space: Space
    fixed: tuple[str, ...]
    seeds: tuple[str, ...]
    count: int
    name: str
    config: RunConfig
    identity: str
    repetitions: Repetitions | None
    start: Start | None
    repeated: str = ""

    @property
    def choices(self) -> dict[str, str]:
        """The data set, the model and the method, without those that differ between trials."""
        searched, options = {range_.key for range_ in self.space.ranges}, self.config["choices"]
        return {group: options[group] for group in NAMED_GROUPS if group not in searched}

    @property
    def rule(self) -> SelectionRule:
        return RULES[self.options.rule]

    @property
    def extend(self) -> int:
        """The number of trials in each piece that is added to a range."""
        given = self.options.extend
        return math.ceil(PIECE * self.count) if given is None else given

    @property
    def final_seeds(self) -> tuple[str, ...]:
        """Those of finalists, after the largest of its seeds."""
        first = max(map(int, self.seeds)) + 1
        return tuple(map(str, range(first, first + self.options.final_seeds)))

    @property
    def settings(self) -> list[str]:
        return [o for o in self.fixed if is_scientific(o) or key_of(o) == "table"]

    @property
    def special(self) -> dict[str, float]:
        """The numbers that make the method its special case, by key, if the search starts there."""
        return numbers(self.start.own) if self.start else {}

    def runs(self, values: Mapping[str, str]) -> list[RunConfig | Failure]:
        settings = [*self.fixed, *override_texts(values)]
        return [configured([*settings, f"seed={seed}"]) for seed in self.seeds]

    def trial_run(self, candidate: Configuration, token: str) -> RunConfig:
        """A trial of a private search, whose token gives it its own noise; UserError for settings
        that are refused."""
        (seed,), values = self.seeds, self.space.values(candidate)
        return run_config([*self.fixed, *override_texts(values), f"seed={seed}", f"trial={token}"])

    def with_trial_epsilon(self, epsilon: float) -> "SearchRequest":
        """The same search, with an epsilon for each trial, by RDP unless the user says otherwise:
        that of the search is the smaller bound in any case, and PLD would take minutes."""
        budget = ("privacy.noise_multiplier=null", f"privacy.epsilon={epsilon!r}")
        return replace(self, fixed=("privacy.accountant=rdp", *self.fixed, *budget))

    def command(self, values: Mapping[str, str], with_seeds: bool = True) -> str:
        """The command for a trial's settings on all training examples and the test set."""
        fixed = [o for o in self.fixed if key_of(o) not in DROPPED]
        multirun = ["-m"] if len(self.seeds) > 1 else []
        seeds = [f"seed={','.join(self.seeds)}"] if with_seeds else []
        settings = [*fixed, *override_texts(values), *seeds, *as_flags(self.fixed)]
        return shlex.join(["dpbench", "run", *multirun, *settings])


def parse(arguments: list[str]) -> SearchRequest:
    """The request of a command line; UserError for all that can be refused before any run."""
    settings, overrides = split_settings("search", SearchCommand, arguments)
    case = _special_case(settings, overrides)
    if settings.space:
        overrides = with_space(method_of_space(settings.space, overrides), overrides)
    ranges, fixed = split_ranges(overrides)
    if settings.name and not re.fullmatch(r"\w[\w.-]{,99}", settings.name):
        name = quoted(settings.name)
        raise UserError(f"name must be up to 100 letters, digits, '.', '_' and '-', got {name}.")
    check_installed(settings.by)
    space = Space(tuple(range_ for range_ in ranges if range_.key != "seed"))
    _check_ranges(space.ranges)
    if both := {range_.key for range_ in ranges} & {*map(key_of, fixed)}:
        raise UserError(f"{min(both)} has a range and a value: give one of them.")
    if "validation" not in map(key_of, fixed):
        fixed = [*fixed, DEFAULT_VALIDATION]
    repetitions, epsilon = _repetitions(settings), settings.epsilon
    if repetitions and "score_noise_multiplier" not in map(key_of, fixed):
        fixed = [*fixed, SCORE_NOISE]
    config = _compose_first(space.ranges, fixed)
    if config["save_model"] and not repetitions:
        raise UserError("search keeps no models: give save_model=true to the run that it chooses.")
    seeds = _seeds(ranges, config)
    if repetitions:
        _check_private(arguments, space.ranges, seeds, config["again"])
    if epsilon is not None:
        _check_calibrated(overrides, epsilon)
    law = [] if repetitions is None else [str(settings.N), repr(repetitions)]
    law += [] if epsilon is None else [f"epsilon={epsilon!r}"]
    identity, short = _identity_and_name(settings, space, seeds, config, law, case is not None)
    name = settings.name or f"{config['choices']['dataset']}-{short}"
    count = int(min(settings.N, space.size))
    start = None
    if case:
        folder = config.results / SEARCH
        start, space, fixed = started(case, settings.start, space, fixed, name, folder)
    fixed = [o for o in fixed if key_of(o) != "seed"]
    parts = name, config, identity, repetitions, start
    return SearchRequest(settings, space, tuple(fixed), seeds, count, *parts)


def repeated(arguments: list[str]) -> list[SearchRequest]:
    """The independent searches of a command line: one, or NAME-1, NAME-2, ..., each with the draws
    and the seeds that follow those of the one before, and a start of its own number. Raises
    UserError as `parse` does."""
    settings, overrides = split_settings("search", SearchCommand, arguments)
    if settings.repeat == 1:
        return [parse(arguments)]
    _special_case(settings, overrides)  # refuses the start by its name, without a number
    named = settings.start not in ("", NONE)
    first = parse([a for a in arguments if not (named and key_of(a) == "start")])
    counted = ("name", "draw", "seed", *(["start"] if named else []))
    own = [argument for argument in arguments if key_of(argument) not in counted]
    span = int(first.final_seeds[-1]) + 1 - int(first.seeds[0])
    requests = []
    for number in range(settings.repeat):
        seeds = ",".join(str(int(seed) + number * span) for seed in first.seeds)
        drawn = [f"name={first.name}-{number + 1}", f"seed={seeds}"]
        drawn += [f"draw={settings.draw + number}"]
        drawn += [f"start={settings.start}-{number + 1}"] if named else []
        requests.append(replace(parse([*own, *drawn]), repeated=first.name))
    return requests


def _special_case(settings: SearchCommand, overrides: list[str]) -> SpecialCase | None:
    """The special case that the search of a method starts at; None for none, and where the user
    sets what makes the method that one. UserError if there is none to start at as asked."""
    if not settings.space and settings.start not in ("", NONE):
        raise UserError(f"start={settings.start} needs a search space: space=method.")
    if not settings.space or settings.start == NONE or settings.private:
        return None  # of private trials, none follows from others
    case = special_case(method := method_of_space(settings.space, overrides))
    if case and not case.is_open(map(key_of, overrides)):
        case = None
    if settings.start and not case:
        raise UserError(
            f"start={settings.start} needs the whole search space of a method that contains "
            f"another one, which that of {method} is not: leave start out."
        )
    return case


def _identity_and_name(
    settings: SearchCommand,
    space: Space,
    seeds: Sequence[str],
    config: RunConfig,
    law: list[str],
    starts: bool,
) -> tuple[str, str]:
    """What tells a search from all others, and the end of its default name.

    law: that of the trials of a private search, whose page's name must not depend on the seed or
    the data. starts: whether there is a trial before the others.
    """
    choice = [settings.by, settings.rule, str(settings.draw)]
    ranges = [f"{range_.key}={range_.text}" for range_ in space.ranges]
    parts = [*choice, *seeds, config.digest, *ranges]
    if settings.finalists:
        parts += [str(settings.finalists), str(settings.final_seeds)]
    if not law:
        parts += ["extend", str(settings.extend or "")] if settings.extend != 0 else []
        parts += ["start", settings.start] if starts else []
        return _short(parts), _short(parts)
    name = [*choice, digest(without_seed_and_checksum(config.plain)), *ranges, *law]
    return _short([*parts, *law]), _short(name)


def _short(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _repetitions(settings: SearchCommand) -> Repetitions | None:
    if settings.private:
        return Repetitions(settings.law, settings.trials, settings.shape)
    for key in PRIVATE:
        if getattr(settings, key) != getattr(SearchCommand(), key):
            raise UserError(f"{key} is a setting of private=true.")
    return None


def _check_private(
    arguments: list[str], ranges: tuple[Range, ...], seeds: tuple[str, ...], again: object
) -> None:
    if unsupported := {key_of(argument) for argument in arguments} & OPEN:
        raise UserError(
            f"{min(unsupported)} is not for private=true, which draws candidates at random and "
            "chooses by the noisy accuracy."
        )
    if again:
        raise UserError(
            f"again={again if again == STALE else 'true'} is not for private=true, as a second "
            "choice has an epsilon of its own: search under another name=, and with noise=seeded "
            "with another seed=."
        )
    if len(seeds) > 1:
        raise UserError("private=true takes one seed: each trial is one run.")
    private = ("score_noise_multiplier", "trial", "privacy.delta", "noise")
    if searched := [range_.key for range_ in ranges if range_.key in private]:
        raise UserError(f"{searched[0]} must be the same for all trials of private=true.")


def _check_calibrated(overrides: list[str], epsilon: float) -> None:
    fixing = ("privacy", "privacy.epsilon", "privacy.noise_multiplier")
    for override in overrides:
        if key_of(override) in fixing:
            raise UserError(
                f"epsilon={epsilon:g} is that of the whole search, from which the noise of its "
                f"trials follows: leave out {override} (privacy.delta sets delta)."
            )


def _check_ranges(ranges: tuple[Range, ...]) -> None:
    if not ranges:
        raise UserError(
            "search needs a range: batch_size=64,256 or optimizer.lr=tag(log,interval(1e-3,1))."
        )
    for key in (range_.key for range_ in ranges):
        if sum(range_.key == key for range_ in ranges) > 1:
            raise UserError(f"{key} has two ranges: give one with all of its values.")
        if key_of(key) == "validation":
            raise UserError("validation must be one share for all trials; give a single number.")
        if not is_scientific(key):
            raise UserError(f"{key} cannot be searched: {nearest(key_of(key), _searchable())}")


def _searchable() -> list[str]:
    config = compose([])
    keys = {*config, *(key for key, _ in leaves(config) if not key.endswith("_target_"))}
    return [key for key in keys if is_scientific(key) and key != "validation"]


def _compose_first(ranges: tuple[Range, ...], fixed: list[str]) -> RunConfig:
    """The configuration of the first valid combination; UserError if no trial could be valid.

    Not every setting exists in every trial: method=sgd has no method.bound.
    """
    group_ranges = [range_ for range_ in ranges if range_.key in groups()]
    values = [f"{range_.key}={range_.first}" for range_ in ranges if range_ not in group_ranges]
    options = [[f"{range_.key}={name}" for name in _options(range_)] for range_ in group_ranges]
    for option in itertools.chain(*options):
        compose([option])
    errors: list[UserError] = []
    for combination in itertools.product(*options):
        try:
            config = RunConfig.composed([*fixed, *combination, *values])
        except UserError as error:
            errors.append(error)
            continue
        check_execution(config)
        if config["validation"] is None:
            raise UserError(
                f"a search chooses by a validation split: set a share, e.g. {DEFAULT_VALIDATION}."
            )
        return config
    raise errors[0]


def _options(range_: Range) -> tuple[str, ...]:
    if isinstance(range_, Choices):
        return range_.values
    raise UserError(f"{range_.key} has no interval of options: write {range_.key}=A,B.")


def _seeds(ranges: list[Range], config: RunConfig) -> tuple[str, ...]:
    for range_ in ranges:
        if range_.key == "seed":
            if not isinstance(range_, Choices) or not all(v.isdecimal() for v in range_.values):
                raise UserError(
                    f"seed={range_.text} must be whole numbers of at least 0: seed=0,1,2."
                )
            return tuple(str(integer("seed", seed, 0)) for seed in sorted(map(int, range_.values)))
    return (str(config["seed"]),)


def with_space(name: str, overrides: list[str]) -> list[str]:
    """The overrides, after the ranges of a space for settings that they do not set themselves;
    UserError for a broken space."""
    given = {key_of(override) for override in overrides}
    return [*(f"{k}={v}" for k, v in ranges_of(name).items() if k not in given), *overrides]


def method_of_space(name: str, overrides: list[str]) -> str:
    """The method whose space is meant: one that is named, or that of the runs (OF_THE_METHOD);
    UserError for one without a space, and where several are searched."""
    if name == OF_THE_METHOD:
        ranges, fixed = split_ranges(overrides)
        if searched := [r for r in ranges if r.key == OF_THE_METHOD]:
            raise UserError(
                f"space=method is that of one method, not of {searched[0].text}: search each by "
                "itself."
            )
        name = compose(fixed)["choices"][OF_THE_METHOD]
        if not space_of(name):
            raise UserError(
                f"method={name} has no search space: write `search:` with ranges into its YAML "
                "file, or give ranges such as optimizer.lr=tag(log,interval(1e-3,1))."
            )
    return one_of("space", name, searchable())
