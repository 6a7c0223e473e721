"""From the command line to a run: the only module that knows Hydra.

    conf/*.yaml and overrides -> plain dict (compose) -> Run (build)

A `table` may be added (`+table=NAME`): its options and settings for the chosen data set and method
then take the place of the defaults, and whatever the user says on the command line still wins.
A table whose rows differ by more than their method names each an arm, to which its rules may refer:
`+table=NAME table.arm=ARM` is that row.
"""

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpbench.data.validation import validated
from dpbench.errors import UserError, nearest
from dpbench.resources import conf_folder
from dpbench.results import SCIENTIFIC
from dpbench.search.space import Choices, Interval, Range
from dpbench.training.plan import Run

if TYPE_CHECKING:
    from dpbench.launchers import Launcher
    from dpbench.trackers import Tracker

TARGETS = ("dpbench.", "torch.optim.")
"""What a configuration may build: nothing outside these packages is ever imported by name."""

ARM = "table.arm"
"""Which row of a table, where rows differ by more than their method."""

HOW = ("engine", "physical_batch_size", "channels_last", "device")
"""Settings that reach a run without being part of what it is."""


def compose(overrides: list[str]) -> dict:
    """The plain configuration of one run; UserError, with the nearest names, for what is unknown.

    `choices` in it names the option chosen in each group.
    """
    with _hydra():
        try:
            parsed = check(overrides)
            config, choices = _composed([str(override.input_line) for override in parsed])
            for rule in _rules(config, choices):
                config.merge_with(rule.get("set", {}))
            for override in parsed:
                if _sets_a_value(override):
                    OmegaConf.update(config, override.key_or_group, override.value())
            plain = cast(dict, OmegaConf.to_container(config, resolve=True))
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(_sentence(error)) from error
    plain["choices"] = {k: v for k, v in choices.items() if not k.startswith(("hydra", "table"))}
    return plain


def build(config: dict) -> Run:
    """The run that a plain configuration describes; UserError for values that no run can have."""
    _check_targets(config)
    wanted = {k: config.get(k) for k in (*SCIENTIFIC, *HOW)} | {"engine": config["engine"]["name"]}
    try:
        parts = hydra.utils.instantiate(wanted, _convert_="all")
        parts["dataset"] = validated(parts["dataset"], parts.pop("validation"))
        return Run(**parts, config=config)
    except (HydraException, TypeError) as error:
        raise _user_error(error) from error


def expand(overrides: list[str]) -> list[list[str]]:
    """Every combination of a sweep: `a=1,2 b=3` is [a=1, b=3] and [a=2, b=3]."""
    with _hydra():
        choices = [
            [f"{o.get_key_element()}={value}" for value in _values(o)]
            if o.is_sweep_override()
            else [str(o.input_line)]
            for o in _parse(overrides)
        ]
    return [list(combination) for combination in itertools.product(*choices)]


def _values(override: Override) -> list[str]:
    if override.is_interval_sweep():
        raise UserError(f"{override.input_line} is an interval: use dpbench search.")
    return list(override.sweep_string_iterator())


def ranges(overrides: list[str]) -> tuple[list[Range], list[str]]:
    """The ranges among overrides, in the order of their names, and the other overrides.

    A range is what Hydra's grammar knows: `a=1,2`, `a=choice(1,2)`, `a=range(1,5)`, `a=glob(*)`,
    `a=interval(0,1)`, `a=tag(log,interval(1e-3,1))`, `a=int(interval(1,8))`.
    """
    with _hydra():
        parsed = _parse(overrides)
        swept = [_range(override) for override in parsed if override.is_sweep_override()]
    plain = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
    return sorted(swept, key=lambda one: one.key), plain


def _range(override: Override) -> Range:
    key, swept = override.get_key_element(), override.value()
    tags = frozenset(getattr(swept, "tags", ()))
    if isinstance(swept, IntervalSweep):
        return Interval(key, cast(float, swept.start), cast(float, swept.end), tags)
    # Sorted, because shuffle(...) draws from no seed of ours.
    return Choices(key, tuple(sorted(set(override.sweep_string_iterator()))), tags)


def options(group: str) -> list[str]:
    """The names to choose from in a configuration group."""
    with _hydra():
        return GlobalHydra.instance().config_loader().get_group_options(group)


def groups() -> list[str]:
    """The configuration groups, `table` among them."""
    return sorted(p.name for p in conf_folder().iterdir() if p.is_dir())


def launcher(config: dict) -> "Launcher":
    """Where a configuration wants its runs to be carried out, if there are several."""
    return _made(config["launcher"])


def trackers(config: dict) -> "dict[str, Tracker]":
    """What is to be told how a run goes on, by name."""
    return {name: _made(part) for name, part in (config.get("tracker") or {}).items()}


def _made(part: dict):
    """What one part of a configuration describes."""
    _check_targets(part)
    try:
        return hydra.utils.instantiate(part, _convert_="all")
    except (HydraException, TypeError) as error:
        raise _user_error(error) from error


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra ready to compose, started once where one use is part of another."""
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with hydra.initialize_config_dir(str(conf_folder().absolute()), version_base="1.3"):
        yield


def _parse(overrides: list[str]) -> list[Override]:
    try:
        loader = GlobalHydra.instance().config_loader()
        return OverridesParser.create(loader).parse_overrides(overrides)
    except HydraException as error:
        raise UserError(
            f"an override reads KEY=VALUE, and one of {' '.join(overrides)} does not: "
            f"{_sentence(error)}"
        ) from error


def check(overrides: list[str]) -> list[Override]:
    """The parsed overrides, after the options that the table's rules choose: the last one counts.

    Raises UserError, with the nearest names, for unknown ones.
    """
    parsed = _parse(overrides)
    chosen = [o for o in parsed if o.key_or_group in groups() or o.key_or_group == ARM]
    for override in parsed:
        if override.is_sweep_override():
            raise UserError(f"{override.input_line} names several runs: use dpbench run -m.")
    for override in chosen:
        _check_option(override)
    options = [str(override.input_line) for override in chosen]
    config, choices = _of_options(conf_folder(), *options)
    _check_arm(config)
    if by_table := _chosen_by_table(config, choices):
        config, _ = _of_options(conf_folder(), *by_table, *options)
    known = set(_keys(config))
    for override in parsed:
        key = override.key_or_group
        if not (key in groups() or key.startswith(("hydra", "table.")) or _fits(override, known)):
            raise UserError(f"{key} is not a setting: {nearest(key, known | set(groups()))}")
    return [*_parse(by_table), *parsed]


def _check_option(override: Override) -> None:
    group, value = override.key_or_group, override.value()
    if group == ARM:
        return
    names = GlobalHydra.instance().config_loader().get_group_options(group)
    for one in value if isinstance(value, list) else [value]:
        if one not in names:
            raise UserError(f"{group}={one} is unknown: {nearest(str(one), names)}")
    if group == "table" and not _adds(override):
        raise UserError(f"a table is added to the other choices: write +table={value}.")


def _check_arm(config: DictConfig) -> None:
    table = config.get("table", {})
    arm, known = table.get("arm"), table.get("methods", [])
    if arm is not None and arm not in known:
        raise UserError(f"{ARM}={arm} is unknown: {nearest(str(arm), known)}")


def _fits(override: Override, known: set[str]) -> bool:
    """Whether there is such a key, or one is added where a constructor refuses misspelt ones."""
    key = override.key_or_group
    return key in known or (_adds(override) and f"{key.rpartition('.')[0]}._target_" in known)


def _adds(override: Override) -> bool:
    return override.is_add() or override.is_force_add() or override.is_delete()


def _sets_a_value(override: Override) -> bool:
    key = override.key_or_group
    return key not in groups() and not key.startswith("hydra") and not override.is_delete()


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for key, value in config.items_ex(resolve=False):
        yield prefix + str(key)
        if isinstance(value, DictConfig):
            yield from _keys(value, f"{prefix}{key!s}.")


def _chosen_by_table(config: DictConfig, choices: dict) -> list[str]:
    """The options that the table's rules choose."""
    rules = _rules(config, choices)
    wanted = {group: name for rule in rules for group, name in rule.get("choose", {}).items()}
    return [f"{group}={name}" for group, name in wanted.items()]


@functools.lru_cache(maxsize=256)
def _of_options(folder: Path, *options: str) -> tuple[DictConfig, dict[str, str]]:
    """What options alone compose to, to look at: runs of a sweep have them in common."""
    return _composed(list(options))


def _composed(overrides: list[str]) -> tuple[DictConfig, dict[str, str]]:
    """The configuration and the option chosen in each group."""
    config = hydra.compose("config", overrides, return_hydra_config=True)
    choices = {str(k): str(v) for k, v in config.hydra.runtime.choices.items()}
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    OmegaConf.set_struct(config, True)
    return config, choices


def _rules(config: DictConfig, choices: dict) -> Iterator[DictConfig]:
    """The table's rules for these choices, in the order in which it says them."""
    table = config.get("table", {})
    chosen = {**choices, "arm": table.get("arm")}
    for rule in table.get("settings", ()):
        if all(chosen.get(group) == option for group, option in rule.get("when", {}).items()):
            yield rule


def _check_targets(node: object) -> None:
    """Refuse to build anything outside the packages that configurations are about."""
    if isinstance(node, dict):
        target = node.get("_target_")
        if target is not None and not str(target).startswith(TARGETS):
            raise UserError(f"_target_={target} is refused: it must begin with {TARGETS}.")
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            _check_targets(value)


def _user_error(error: BaseException) -> UserError:
    """The UserError that a constructor raised somewhere below, or one made of its first line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__cause__ or cause.__context__
    # Hydra's own first line says only which constructor it was.
    return UserError(_sentence(error.__cause__ or error))


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split("\n")[0].split()).removesuffix(":")


def data_folder(config: dict) -> Path:
    """Where the data of a configuration lie."""
    from dpbench.data.download import default_folder

    return Path(config["data_dir"]) if config["data_dir"] else default_folder()
