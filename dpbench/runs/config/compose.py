"""From overrides to the plain configuration of one run, composed by Hydra.

A table may be added (`+table=NAME`): its options and settings for the chosen data set and method,
or for an arm of it, then replace the defaults; overrides on the command line take precedence.
"""

import functools
import pickle
import re
from collections.abc import Mapping
from typing import cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import GrammarParseError, InterpolationResolutionError, OmegaConfBaseException

from dpbench.runs.config import buildable, search_path
from dpbench.runs.config.chosen_options import composed
from dpbench.runs.config.overrides import grammar, parse, sentence
from dpbench.runs.config.plugins import plugin_of
from dpbench.runs.config.search_path import Folders, groups, options
from dpbench.runs.config.settings import PATHS, SETTINGS, target_of
from dpbench.runs.config.table_rules import chosen_by_table, of_seed, table_of, values
from dpbench.runs.config.yaml_files import check_expansion, read_yaml
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import one_of, quoted, shown

BUDGET = re.compile(r"eps(\d+(?:\.\d+)?)")
"""The name of an option that, in the group privacy, would be a budget of this epsilon."""

FEW = 5
"""The most options that a message names as those that have a setting."""

CUSTOM = "dpbench.data.custom."
"""The modules of data sets whose settings are completed from the data."""


def compose(overrides: list[str]) -> dict:
    """The plain configuration of one run; UserError, with the nearest names, for unknown names. Its
    key `choices` has the option chosen in each group."""
    plain = before_data(overrides)
    for group in ("model", "features"):
        if _names_weights(plain[group]):
            from dpbench.learning.data.fetch import published_weights  # which imports torch

            plain[group] = published_weights.named_by_content(plain[group], group)
    if target_of(plain["dataset"]).startswith(CUSTOM):
        from dpbench.learning.data.custom.public_settings import (  # which imports pandas
            display_name,
            with_public_settings,
        )

        plain["dataset"], plain["users"] = with_public_settings(plain["dataset"], plain["users"])
        option = plain["choices"]["dataset"]
        plain["choices"]["dataset"] = display_name(option, plain["dataset"])
    return plain


def before_data(overrides: list[str]) -> dict:
    """A configuration as `compose` gives it, but for what is read from files of the user's own."""
    added, others = search_path.split_folders(overrides)
    with search_path.searching(added):
        return pickle.loads(_composed(search_path.folders(), *others))


def setting_names(chosen: tuple[str, ...]) -> set[str]:
    """The names of all settings of a run with the chosen options."""
    with grammar():
        return {*_base(search_path.folders(), *chosen)[1]}


def _names_weights(part: object) -> bool:
    """Whether a part's settings lack what files of weights say. Those of a package or the hub whose
    checksum is configured are not looked for: nothing else has to be known before they are used."""
    if not isinstance(part, dict):
        return False
    unknown = part.get("checksum") is None or part.get("config", {}) is None
    elsewhere = any(part.get(key) is not None for key in ("package", "hub"))
    return part.get("weights") is not None or (elsewhere and unknown)


@functools.lru_cache(maxsize=1024)
def _composed(folders: Folders, *overrides: str) -> bytes:
    """The configuration, pickled; cached, since a table composes those of its runs repeatedly."""
    with grammar():
        try:
            return pickle.dumps(_plain(folders, parse(list(overrides))))
        except (InterpolationResolutionError, GrammarParseError) as error:
            raise UserError(
                f"{error.full_key} cannot be read: {sentence(error)}; ${{NAME}} stands for the "
                "value of another setting, such as ${epochs}."
            ) from error
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(sentence(error)) from error


def _plain(folders: Folders, parsed: list[Override]) -> dict:
    """The configuration of parsed overrides: the options, a table's rules, the user's values."""
    for override in parsed:
        if override.is_sweep_override():
            raise UserError(_several_runs(override))
    own = [o for o in parsed if o.key_or_group not in groups() and not _is_of_table(o)]
    shared = [o for o in parsed if o not in own]
    if any(_is_of_table(o) and "${" in str(o.input_line) for o in shared):
        shared = parsed  # a setting of the table may name others of this run
    base, known = _base(folders, *(str(override.input_line) for override in shared))
    known = known | {o.key_or_group: o.value() for o in own if o.key_or_group in known}
    for override in own:
        _check_key(override, known)
    config, choices, table = pickle.loads(base)
    replaced = _replaced(own)
    for group, target in replaced.items():
        config[group] = {buildable.TARGET: target}
    if table is not None and table.get("searches", 1) > 1:
        given = [o.value() for o in own if o.key_or_group == "seed"]
        seeds = [seed for seed in (config.seed, *given) if isinstance(seed, int)]
        config.merge_with(of_seed(table_of(table), choices, seeds[-1]))
    _set_values(config, own)
    if any("${" in str(override.input_line) for override in own):
        check_expansion(config)
    plain = cast(dict, OmegaConf.to_container(config, resolve=True))
    if table is not None:
        plain["table"] = table
    plain["choices"] = choices | replaced
    return plain


@functools.lru_cache(maxsize=256)
def _base(folders: Folders, *lines: str) -> tuple[bytes, dict[str, object]]:
    """What runs with these options and settings of a table share: configuration, choices and plain
    table, pickled; and every key with its value, not to be modified. The options that the table's
    rules choose come before the user's, which take precedence."""
    parsed, table, file = parse(list(lines)), None, None
    options = [o for o in parsed if o.key_or_group in groups()]
    for option in options:
        _check_option(option)
    config, choices = composed(options)
    if "table" in config or any(map(_is_of_table, parsed)):
        table = _table(config, [o for o in parsed if o not in options])
        file = table_of(table)
        config, choices = composed([*parse(chosen_by_table(file, choices)), *options])
        with open_dict(config):
            config.pop("table", None)
    known = dict.fromkeys(groups()) | _keys(config) | _keys({"table": table} if table else {})
    for chosen_values in values(file, choices) if file else ():
        config.merge_with(chosen_values)
    if table is not None or search_path.added_folders():
        _check_chosen_by_user(config, options, table is not None)
        check_expansion(config)
    return pickle.dumps((config, choices, table)), known


def _table(config: DictConfig, overrides: list[Override]) -> dict:
    """The plain table of a configuration in which overrides are set."""
    known = dict.fromkeys(groups()) | _keys(config)
    for override in filter(_is_of_table, overrides):
        _check_key(override, known)
    _set_values(config, overrides)
    check_expansion(config)
    if not isinstance(config.table, DictConfig):
        raise UserError(f"table must be a mapping, got {quoted(config.table)}.")
    return cast(dict, OmegaConf.to_container(config.table, resolve=True))


def _is_of_table(override: Override) -> bool:
    """Whether an override sets a value of the table, not of the run."""
    return override.key_or_group.startswith("table.")


def _set_values(config: DictConfig, overrides: list[Override]) -> None:
    """Set values, and delete keys, whose names are checked."""
    for override in overrides:
        if override.is_delete():
            ConfigLoaderImpl._apply_overrides_to_config([override], config)
        else:
            OmegaConf.update(config, override.key_or_group, override.value(), force_add=True)


def _check_chosen_by_user(config: DictConfig, options: list[Override], by_table: bool) -> None:
    """UserError for what a file sets in the place of the user: settings of where and by what a
    command runs, as a launcher's set-up lines run in a shell; and data sets and models, which may
    read files, except by a table. options: those that the user has chosen."""
    keys = [key for key in map(str, config) if key not in SETTINGS]
    for key in keys if by_table else [*keys, *PATHS]:
        lines = (str(o.input_line) for o in options if o.key_or_group == key)
        if config[key] != _alone(search_path.folders(), key, *lines):
            source = "a table" if by_table else "an option of another group"
            name = f"the {key}" if key in groups() else key
            raise UserError(f"{source} cannot set {name}: choose it on the command line.")


@functools.lru_cache(maxsize=1024)
def _alone(folders: Folders, key: str, *lines: str) -> object:
    """What the options of one group, or the defaults, set a key to; not to be modified."""
    return composed(parse(list(lines))).config.get(key)


def _replaced(overrides: list[Override]) -> dict[str, str]:
    """By group, the plug-in's target that replaces the chosen option and all of its settings. The
    target is then recorded as the choice in that group, since the option is not used."""
    targets = {f"{group}.{buildable.TARGET}": group for group in groups()}
    return {
        targets[override.key_or_group]: str(override.value())
        for override in overrides
        if override.key_or_group in targets and plugin_of(str(override.value()))
    }


def _several_runs(override: Override) -> str:
    """The message that refuses several values in place of one."""
    key, line = shown(override.key_or_group), shown(str(override.input_line))
    if override.is_interval_sweep():
        return f"{line} is an interval: use dpbench search, or give {key} one value."
    return (
        f"{line} names several runs: use dpbench run -m; a list is written {key}=[...], and a text "
        f"with a comma is quoted twice, as in '{key}=\"a, b\"'."
    )


def _check_option(override: Override) -> None:
    group, value = override.key_or_group, override.value()
    if override.is_delete():
        raise UserError(f"{group} cannot be deleted: choose an option, e.g. {group}=NAME.")
    names = options(group)
    if group == "privacy" and value not in names and (epsilon := BUDGET.fullmatch(str(value))):
        raise UserError(
            f"privacy={value} is unknown: for this epsilon, write privacy=eps1 "
            f"privacy.epsilon={epsilon[1]}."
        )
    several = group == "tracker" and isinstance(value, list) and bool(value)
    for option in cast(list, value) if several else [value]:
        one_of(group, option, names)
    if override.is_add() != (group == "table") or override.is_force_add():
        key = "+table" if group == "table" else group
        line = str(override.input_line)
        value = shown(line.partition("=")[2])
        raise UserError(f"{shown(line)} is refused: write {key}={value}.")


def _check_key(override: Override, known: Mapping[str, object]) -> None:
    """UserError for an unknown key, unless it may be added, or for deleting a required one.
    Optional settings of a constructor may be added, and deleted. known: the values by key."""
    key = override.key_or_group
    parent = key.rpartition(".")[0]
    constructed = f"{parent}.{buildable.TARGET}" in known
    name = shown(key)
    if override.is_delete() and not constructed:
        raise UserError(f"{name} cannot be deleted: set it to a value.")
    of_table = parent == "table"
    added = (override.is_add() or override.is_force_add()) and (constructed or of_table)
    free = of_table or key in groups() or isinstance(known.get(key), DictConfig | dict)
    if override.is_add() and key in known and not free:
        line = shown(str(override.input_line))
        raise UserError(f"{line} is refused: {name} is a setting, so write {line.lstrip('+')}.")
    if key not in known and not added:
        if constructed and not override.is_delete():
            _refuse_without_plus(override, str(known[f"{parent}.{buildable.TARGET}"]))
        having = [] if override.is_delete() else _options_with(key)
        if 0 < len(having) <= FEW:
            raise UserError(
                f"{name} is not a setting of the chosen {parent}: choose {parent}="
                f"{' or '.join(having)}."
            )
        siblings = {name for name in known if name.startswith(f"{parent}.")}
        if constructed and siblings == {f"{parent}.{buildable.TARGET}"}:
            raise UserError(f"{name} is not a setting: the chosen {parent} has none.")
        raise UserError(f"{name} is not a setting: {nearest(key, known)}")


def _options_with(key: str) -> list[str]:
    """The options of a key's group whose files have it; none of a key without a group."""
    group, _, setting = key.partition(".")
    names = options(group) if group in groups() else []
    files = ((option, search_path.file_of(group, option)) for option in names)
    return [option for option, file in files if file and setting in (read_yaml(file) or ())]


def _refuse_without_plus(override: Override, target: str) -> None:
    """UserError if the target takes the setting, which its option leaves at the default."""
    group, name = override.key_or_group.split(".")[0], override.key_or_group.rpartition(".")[2]
    if buildable.takes(group, target, name):
        raise UserError(
            f"{override.key_or_group} is left at the default of {target}: write "
            f"+{shown(str(override.input_line))} to set it."
        )


def _keys(config: DictConfig | dict, prefix: str = "") -> dict[str, object]:
    """Every key at any depth, with its value."""
    items = config.items_ex(resolve=False) if isinstance(config, DictConfig) else config.items()
    known: dict[str, object] = {}
    for key, value in items:
        known[f"{prefix}{key!s}"] = value
        if isinstance(value, DictConfig | dict):
            known |= _keys(value, f"{prefix}{key!s}.")
    return known
