"""Refuses a misspelt key before a command imports what takes long."""

import functools
import re
from collections.abc import Iterable, Sequence

from dpbench.runs.config.compose import setting_names
from dpbench.runs.config.experiments import KEY as EXPERIMENT
from dpbench.runs.config.search_path import groups, options
from dpbench.runs.config.settings import key_of
from dpbench.runs.config.yaml_files import read_settings
from dpbench.system.errors import UserError, nearest
from dpbench.system.paths import conf_folder
from dpbench.system.validate import shown

OWN_TABLE = ("dataset=csv",)
"""The data set whose settings may be meant before it is chosen."""

KEY, FLAG = re.compile(r"\+*(\w+)(?:\.[\w.]*)?="), re.compile(r"--?(\w+)(?:=(.*))?", re.DOTALL)


def check_spelling(command: str, arguments: Sequence[str], own: Iterable[str]) -> None:
    """UserError for a key that no configuration has and is none of the command's own, and for a key
    that is written as a flag."""
    known = {*groups(), *_of_no_group(), EXPERIMENT, "hydra"}
    for argument, following in zip(arguments, [*arguments[1:], "VALUE"], strict=False):
        if (flag := FLAG.fullmatch(argument)) and flag[1] in known:
            raise UserError(
                f"{shown(argument)} is not a flag of {command} (settings are KEY=VALUE): write "
                f"{flag[1]}={flag[2] or following}."
            )
        if (key := KEY.match(argument)) and key[1] not in known.union(own):
            name = key_of(argument)
            names = setting_names(tuple(filter(_chooses, arguments))).union(own)
            names |= {n for n in setting_names(OWN_TABLE) if n.endswith(f".{name.split('.')[-1]}")}
            raise UserError(f"{shown(name)} is not a setting: {nearest(name, names)}")


@functools.cache
def _of_no_group() -> tuple[str, ...]:
    settings = read_settings(conf_folder() / "config.yaml")
    return tuple(key for key in settings if key != "defaults")


def _chooses(argument: str) -> bool:
    """Whether an argument chooses one option of a group."""
    group, _, option = argument.partition("=")
    return group in groups() and option in options(group)
