"""Composes options and values by Hydra or, faster, from earlier compositions and option files.

Hydra takes a tenth of a second, and a table has hundreds of runs: what they share is composed once.
"""

import functools
import pickle
import re
from typing import NamedTuple, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, OverrideType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dpbench.config import search_path
from dpbench.config.interpolations import check_expansion
from dpbench.config.literals import has_odd_keys
from dpbench.config.option_files import option_node
from dpbench.config.search_path import Folders, groups
from dpbench.config.yaml_files import broken_files_named
from dpbench.system.errors import UserError
from dpbench.system.validate import quoted

INTERPOLATION = re.compile(r"\$\{([^{}]*)")


class Composition(NamedTuple):
    """A composed configuration, the option chosen in each group, and the table, if there is one.

    The table is a plain mapping, since it is larger than all else and the same for all of its runs.
    interpolated: the words in all interpolations, which name the settings that others depend on.
    """

    config: DictConfig
    choices: dict[str, str]
    table: dict | None
    interpolated: frozenset[str]


def composed(parsed: list[Override]) -> Composition:
    """The configuration of options and values; plain values are set in a copy of a cached one."""
    known = groups()
    composition = _of_options([o for o in parsed if o.key_or_group in known])
    for override in parsed:
        if override.key_or_group not in known and not _set_without_hydra(composition, override):
            # Values with odd keys are set by the caller.
            readable = [o for o in parsed if not has_odd_keys(o.value())]
            return composed_by_hydra([str(override.input_line) for override in readable])
    return composition


def _set_without_hydra(composition: Composition, override: Override) -> bool:
    """Set a value and return True, or return False if only Hydra can set it.

    Values can be set that exist and that no other value depends on.
    """
    key, value = override.key_or_group, override.value()
    if override.type != OverrideType.CHANGE:
        return False
    if not is_of_table(override):
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


def is_of_table(override: Override) -> bool:
    """Whether an override sets a value of the table, not of the run."""
    return override.key_or_group.startswith("table.")


@functools.lru_cache(maxsize=256)
def _compose_options(folders: Folders, *options: str) -> bytes:
    """The configuration of options alone, which runs of a sweep share.

    It is pickled, since reading a pickle takes less than half the time of a deep copy.
    """
    return pickle.dumps(composed_by_hydra(list(options)))


@functools.lru_cache(maxsize=256)
def _set_by_others(folders: Folders, added: tuple[str, ...]) -> frozenset[str]:
    """The groups that files other than their options write to, given what is added (a table)."""
    loader = GlobalHydra.instance().config_loader()
    found: set[str] = set()
    with broken_files_named():
        files = loader.compute_defaults_list("config", [*added], RunMode.RUN).defaults
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
    """Combinations of options that Hydra has composed for these tables; callers add to the set."""
    return set()


def _of_options(overrides: list[Override]) -> Composition:
    """The configuration of options; from the third combination on, assembled from their files.

    So all pairs of data sets and methods in a table take only three slow compositions by Hydra. A
    single run has two combinations: its own options, and those that its table adds.
    """
    folders = search_path.folders()
    # Sorted, so that runs share compositions; the sort is stable: a group's last option counts.
    overrides = sorted(overrides, key=lambda o: o.key_or_group)
    lines = tuple(str(override.input_line) for override in overrides)
    chosen = {o.key_or_group: o.value() for o in overrides if o.type == OverrideType.CHANGE}
    added = tuple(str(o.input_line) for o in overrides if o.type != OverrideType.CHANGE)
    before = _composed_beside(folders, added)
    if len(before - {lines}) < 2 or not chosen.keys().isdisjoint(_set_by_others(folders, added)):
        before.add(lines)
        return pickle.loads(_compose_options(folders, *lines))
    nodes = {group: option_node(group, str(name)) for group, name in chosen.items()}
    if not all(isinstance(node, dict) for node in nodes.values()):
        return pickle.loads(_compose_options(folders, *lines))
    composition = pickle.loads(_compose_options(folders, *added))
    for group, node in nodes.items():
        composition.config[group] = node
        composition.choices[group] = str(chosen[group])
    return composition


def composed_by_hydra(overrides: list[str]) -> Composition:
    """The configuration, the option chosen in each group, and the table."""
    with broken_files_named():
        config = hydra.compose("config", overrides, return_hydra_config=True)
    choices = {str(k): str(v) for k, v in config.hydra.runtime.choices.items()}
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    texts = INTERPOLATION.findall(repr(OmegaConf.to_container(config)))
    interpolated = frozenset(word for text in texts for word in re.findall(r"\w+", text))
    if len(search_path.folders()) > 1:
        check_expansion(config)
    table = None
    if "table" in config:
        if not isinstance(config.table, DictConfig):
            raise UserError(f"table must be a mapping, got {quoted(config.table)}.")
        table = cast(dict, OmegaConf.to_container(config.table, resolve=True))
        del config["table"]
    OmegaConf.set_struct(config, True)
    return Composition(config, choices, table, interpolated)
