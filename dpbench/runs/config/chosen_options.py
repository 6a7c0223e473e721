"""Composes the chosen options: by Hydra, or from what it composed without them and their files.
Hydra takes a tenth of a second, and a table has hundreds of combinations of options."""

import functools
import pickle
from typing import Any, NamedTuple

import hydra
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from dpbench.runs.config import search_path
from dpbench.runs.config.search_path import Folders
from dpbench.runs.config.space import SEARCH
from dpbench.runs.config.yaml_files import broken_files_named, check_expansion, read_yaml
from dpbench.system.errors import UserError

LEFT_TO_HYDRA = ("defaults:", "@package", "${")
"""What marks the file of an option that only Hydra can compose."""


class Composition(NamedTuple):
    """A composed configuration, with its table if there is one, and the option of each group."""

    config: DictConfig
    choices: dict[str, str]


def composed(chosen: list[Override]) -> Composition:
    """The configuration of chosen options: a copy that may be modified.

    An option of ours sets its own group alone and is put in place of the default one, unless a
    table, which is added, has settings for the group: that, and other folders, are left to Hydra.
    """
    folders = search_path.folders()
    # Sorted, so that runs share compositions; the sort is stable: a group's last option counts.
    chosen = sorted(chosen, key=lambda override: override.key_or_group)
    options = {o.key_or_group: str(o.value()) for o in chosen if o.type == OverrideType.CHANGE}
    added = [o for o in chosen if o.type != OverrideType.CHANGE]
    nodes = {group: option_node(group, name) for group, name in options.items()}
    ours = [search_path.own_file_of(o.key_or_group, str(o.value())) for o in added]
    whole = functools.partial(by_hydra, folders, *(str(o.input_line) for o in chosen))
    if None in (*nodes.values(), *ours):
        return pickle.loads(whole())
    composition = pickle.loads(by_hydra(folders, *(str(o.input_line) for o in added)))
    before, choices = composition
    if added and any(before.get(g) != option_node(g, choices[g]) for g in nodes):
        return pickle.loads(whole())
    for group, node in nodes.items():
        composition.config[group] = node
        composition.choices[group] = options[group]
    return composition


@functools.cache
def option_node(group: str, name: str) -> dict[str, Any] | None:
    """The settings in the file of an option, not to be modified; None if only Hydra can compose
    them."""
    path = search_path.own_file_of(group, name)
    try:
        if path is None or any(mark in path.read_text("utf-8") for mark in LEFT_TO_HYDRA):
            return None
        node = read_yaml(path) or {}
    except (UserError, UnicodeDecodeError):  # which is reported when Hydra composes the file
        return None
    return {k: v for k, v in node.items() if k != SEARCH} if isinstance(node, dict) else None


@functools.lru_cache(maxsize=256)
def by_hydra(folders: Folders, *lines: str) -> bytes:
    """What Hydra composes of options, as a `Composition`. It is pickled, since reading a pickle
    takes less than half the time of a deep copy."""
    with broken_files_named():
        config = hydra.compose("config", list(lines), return_hydra_config=True)
    choices = {str(k): str(v) for k, v in config.hydra.runtime.choices.items()}
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    if isinstance(config.get("method"), DictConfig):
        config.method.pop(SEARCH, None)
    OmegaConf.set_struct(config, True)
    if search_path.added_folders():
        check_expansion(config)
    own = {k: v for k, v in choices.items() if not k.startswith(("hydra", "table"))}
    return pickle.dumps(Composition(config, own))
