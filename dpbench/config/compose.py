"""From overrides to the plain configuration of one run, composed by Hydra.

A table may be added (`+table=NAME`): its options and settings for the chosen data set and method
then replace the defaults, and overrides on the command line still take precedence. Where the rows
of a table differ by more than their method, each row is an arm with rules of its own:
`+table=NAME table.arm=ARM`.
"""

import functools
import pickle
import re
from collections.abc import Iterator
from typing import NamedTuple, cast

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpbench.config import buildable, search_path
from dpbench.config.overrides import grammar, parse, sentence
from dpbench.config.plugins import plugin_of
from dpbench.config.rules import ARM, check_table, chosen_by_table, rules
from dpbench.config.search_path import Folders
from dpbench.config.yaml_files import broken_files_named
from dpbench.errors import UserError, nearest
from dpbench.paths import conf_folder
from dpbench.validate import one_of, quoted

CUSTOM = "dpbench.data.custom."
"""The modules of data sets whose settings are completed from the data."""


INTERPOLATION = re.compile(r"\$\{([^{}]*)")


class Composition(NamedTuple):
    """A composed configuration, the option chosen in each group, and the table, if there is one.

    The table is plain: it is larger than all else, and the same for every run of it.
    interpolated: the words in all interpolations, which name what values depend on.
    """

    config: DictConfig
    choices: dict[str, str]
    table: dict | None
    interpolated: frozenset[str]


def compose(overrides: list[str]) -> dict:
    """The plain configuration of one run; UserError, with the nearest names, for unknown names.

    Its key `choices` has the option chosen in each group.
    """
    added, others = search_path.split_folders(overrides)
    with search_path.searching(added):
        plain = pickle.loads(_composed(search_path.folders(), *others))
    if isinstance(plain["model"], dict) and plain["model"].get("weights") is not None:
        from dpbench.models.weights import named_by_content  # which imports torch

        plain["model"] = named_by_content(plain["model"])
    if str(_target_of(plain["dataset"])).startswith(CUSTOM):
        from dpbench.data.custom.described import described, display_name  # which imports pandas

        plain["dataset"] = described(plain["dataset"])
        option = plain["choices"]["dataset"]
        plain["choices"]["dataset"] = display_name(option, plain["dataset"])
    return plain


def _target_of(node: object) -> object:
    return node.get(buildable.TARGET) if isinstance(node, dict) else None


@functools.lru_cache(maxsize=1024)
def _composed(folders: Folders, *overrides: str) -> bytes:
    """The configuration, pickled: a table asks for those of its runs several times."""
    with grammar():
        try:
            parsed = check(list(overrides))
            config, choices, table, _ = _compose(parsed)
            if table is not None:
                check_table(table)
                for rule in rules(table, choices):
                    config.merge_with(rule.get("set", {}))
                _check_launcher(config, list(overrides))
            replaced = _replaced(parsed)
            for group, target in replaced.items():
                config[group] = {buildable.TARGET: target}
            for override in parsed:
                if _sets_a_value(override) and not _is_of_table(override):
                    key, value = override.key_or_group, override.value()
                    OmegaConf.update(config, key, value, force_add=True)
            plain = cast(dict, OmegaConf.to_container(config, resolve=True))
            if table is not None:
                plain["table"] = table
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(sentence(error)) from error
    chosen = {k: v for k, v in choices.items() if not k.startswith(("hydra", "table"))}
    plain["choices"] = chosen | replaced
    return pickle.dumps(plain)


def _check_launcher(config: DictConfig, overrides: list[str]) -> None:
    """UserError for a table that sets the launcher, whose set-up lines are commands of the shell.

    overrides: those of the user, of which a launcher may be one.
    """
    own = [o for o in parse(overrides) if o.key_or_group.split(".")[0] == "launcher"]
    if config["launcher"] != _compose(own).config["launcher"]:
        raise UserError("a table cannot set the launcher: choose it on the command line.")


def _replaced(overrides: list[Override]) -> dict[str, str]:
    """By group, the plug-in's target that replaces the chosen option and all of its settings.

    It is the choice in that group, as the run is none of the option's.
    """
    targets = {f"{group}.{buildable.TARGET}": group for group in groups()}
    return {
        targets[override.key_or_group]: str(override.value())
        for override in overrides
        if override.key_or_group in targets and plugin_of(str(override.value()))
    }


def options(group: str) -> list[str]:
    """The names to choose from in a configuration group."""
    folder = conf_folder() / group
    changed_at = folder.stat().st_mtime_ns if folder.exists() else 0
    return list(_options(search_path.folders(), group, changed_at))


@functools.cache
def _options(folders: Folders, group: str, changed_at: int) -> tuple[str, ...]:
    with grammar():
        return tuple(GlobalHydra.instance().config_loader().get_group_options(group))


def groups() -> list[str]:
    """The configuration groups, `table` among them."""
    return sorted(p.name for p in conf_folder().iterdir() if p.is_dir())


def check(overrides: list[str]) -> list[Override]:
    """The parsed overrides, preceded by the options that the table's rules choose.

    Later overrides take precedence. Raises UserError, with the nearest names, for unknown names.
    """
    parsed, known_groups = parse(overrides), groups()
    chosen = [o for o in parsed if o.key_or_group in (*known_groups, ARM)]
    for override in parsed:
        if override.is_sweep_override():
            raise UserError(f"{override.input_line} names several runs: use dpbench run -m.")
    for override in chosen:
        _check_option(override)
    by_table, known = _options_and_keys(search_path.folders(), *(str(o.input_line) for o in chosen))
    for override in parsed:
        _check_key(override, known | {*known_groups})
    return [*parse(by_table), *parsed]


@functools.lru_cache(maxsize=256)
def _options_and_keys(folders: Folders, *chosen: str) -> tuple[list[str], set[str]]:
    """The options that the table's rules choose, and every key of the resulting configuration.

    Runs that differ only in values share them; not to be modified.
    """
    parsed, by_table = parse(list(chosen)), []
    config, choices, table, _ = _compose(parsed)
    if table is not None:
        check_table(table)
        if by_table := chosen_by_table(table, choices):
            config, *_ = _compose([*parse(by_table), *parsed])
    return by_table, {*_keys(config), *_keys({"table": table} if table else {})}


def _check_option(override: Override) -> None:
    group, value = override.key_or_group, override.value()
    if group == ARM:
        return
    if override.is_delete():
        raise UserError(f"{group} cannot be deleted: choose an option, as {group}=NAME.")
    names = options(group)
    several = group == "tracker" and isinstance(value, list) and bool(value)
    for option in cast(list, value) if several else [value]:
        one_of(group, option, names)
    if override.is_add() != (group == "table") or override.is_force_add():
        raise UserError(f"add a table with +table=NAME, and choose an option with {group}=NAME.")


def _check_key(override: Override, known: set[str]) -> None:
    """UserError for an unknown key, unless it may be added, or for deleting a required one.

    Optional settings of a constructor may be added, and deleted.
    """
    key = override.key_or_group
    parent = key.rpartition(".")[0]
    constructed = f"{parent}.{buildable.TARGET}" in known
    if override.is_delete() and not constructed:
        raise UserError(f"{key} cannot be deleted: set it to a value.")
    added = (override.is_add() or override.is_force_add()) and (constructed or parent == "table")
    if key not in known and not added:
        raise UserError(f"{key} is not a setting: {nearest(key, known)}")


def _is_of_table(override: Override) -> bool:
    return override.key_or_group.startswith("table.")


def _sets_a_value(override: Override) -> bool:
    return override.key_or_group not in groups() and not override.is_delete()


def _keys(config: DictConfig | dict, prefix: str = "") -> Iterator[str]:
    items = config.items_ex(resolve=False) if isinstance(config, DictConfig) else config.items()
    for key, value in items:
        yield prefix + str(key)
        if isinstance(value, DictConfig | dict):
            yield from _keys(value, f"{prefix}{key!s}.")


@functools.lru_cache(maxsize=256)
def _compose_options(folders: Folders, *options: str) -> bytes:
    """The configuration of options alone, which runs of a sweep share, pickled.

    A pickle is read in less than half the time of a deep copy.
    """
    return pickle.dumps(_compose_by_hydra(list(options)))


class Option(NamedTuple):
    """The settings that a file gives its group, and the words in their interpolations."""

    settings: dict
    interpolated: frozenset[str]


@functools.lru_cache(maxsize=1024)
def _option(folders: Folders, group: str, name: str) -> Option | None:
    """What choosing an option sets, if that is what its file says and nothing more."""
    path = search_path.file_of(group, name)
    if path is None:  # several options, as of the tracker
        return None
    try:
        text = path.read_text(encoding="utf-8")
        settings = OmegaConf.to_container(OmegaConf.create(text))
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError):
        return None  # as Hydra refuses it, and says why
    if not isinstance(settings, dict) or "defaults" in settings or "@package" in text:
        return None
    return Option(settings, _interpolated(settings))


@functools.lru_cache(maxsize=256)
def _set_by_others(folders: Folders, added: tuple[str, ...]) -> frozenset[str]:
    """The groups that other files than the option's write to, beside what is added (a table)."""
    loader = GlobalHydra.instance().config_loader()
    files = loader.compute_defaults_list("config", [*added], RunMode.RUN).defaults
    found: set[str] = set()
    for file in files:
        source = next(s for s in loader.get_sources() if s.is_config(file.config_path))
        content = source.load_config(file.config_path)
        if any("${" in str(default) for default in content.defaults_list or ()):
            return frozenset(groups())  # what is read depends on what is chosen
        if not file.package:
            found.update(map(str, content.config))
        elif not file.config_path.startswith(f"{file.package}/"):
            found.add(file.package.partition(".")[0])
    return frozenset(found)


@functools.cache
def _composed_beside(folders: Folders, added: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The combinations of options that were composed beside what is added; to be added to."""
    return set()


def _of_options(overrides: list[Override]) -> Composition:
    """The configuration of options; from the second combination on, put together of their files.

    All pairs of data sets and methods of a table then take Hydra two compositions, which are
    slow, and a single run takes it one.
    """
    folders = search_path.folders()
    # In whatever order, so that runs share what is composed: of one group the last one counts.
    overrides = sorted(overrides, key=lambda o: o.key_or_group)
    lines = tuple(str(override.input_line) for override in overrides)
    chosen = {o.key_or_group: o.value() for o in overrides if o.type == OverrideType.CHANGE}
    added = tuple(str(o.input_line) for o in overrides if o.type != OverrideType.CHANGE)
    before = _composed_beside(folders, added)
    if before <= {lines} or not chosen.keys().isdisjoint(_set_by_others(folders, added)):
        before.add(lines)
        return pickle.loads(_compose_options(folders, *lines))
    options = {group: _option(folders, group, str(name)) for group, name in chosen.items()}
    composition = pickle.loads(_compose_options(folders, *added))
    interpolated = composition.interpolated
    for group, option in options.items():
        if option is None:
            return pickle.loads(_compose_options(folders, *lines))
        composition.config[group] = option.settings
        composition.choices[group] = str(chosen[group])
        interpolated |= option.interpolated
    return composition._replace(interpolated=interpolated)


def _compose(parsed: list[Override]) -> Composition:
    """The configuration of options and values; plain values are set in a copy of a cached one."""
    known = groups()
    composition = _of_options([o for o in parsed if o.key_or_group in known])
    for override in parsed:
        if override.key_or_group not in known and not _is_set(composition, override):
            return _compose_by_hydra([str(override.input_line) for override in parsed])
    return composition


def _is_set(composition: Composition, override: Override) -> bool:
    """Set a value where that takes no Hydra: one that exists, and that no other depends on."""
    key, value = override.key_or_group, override.value()
    if override.type != OverrideType.CHANGE:
        return False
    if not _is_of_table(override):
        # A mapping that is empty in conf/ takes any keys.
        free = OmegaConf.select(composition.config, key) == {}
        OmegaConf.update(composition.config, key, value, force_add=free)
        return True
    if isinstance(value, dict) or "${" in str(value):  # to be merged or resolved
        return False
    *parents, last = key.split(".")[1:]
    node: object = composition.table
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        return False
    node[last] = value
    return composition.interpolated.isdisjoint((*parents, last))


def _interpolated(settings: object) -> frozenset[str]:
    found = INTERPOLATION.findall(repr(settings))
    return frozenset(word for text in found for word in re.findall(r"\w+", text))


def _compose_by_hydra(overrides: list[str]) -> Composition:
    """The configuration, the option chosen in each group, and the table."""
    with broken_files_named():
        config = hydra.compose("config", overrides, return_hydra_config=True)
    choices = {str(k): str(v) for k, v in config.hydra.runtime.choices.items()}
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    interpolated = _interpolated(OmegaConf.to_container(config))
    table = None
    if "table" in config:
        if not isinstance(config.table, DictConfig):
            raise UserError(f"table must be a mapping, got {quoted(config.table)}.")
        table = cast(dict, OmegaConf.to_container(config.table, resolve=True))
        del config["table"]
    OmegaConf.set_struct(config, True)
    return Composition(config, choices, table, interpolated)
