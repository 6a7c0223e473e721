"""Reads YAML files of the configuration; those that may come from somebody else by one rule.

Such a file may have no more than a command line, which may come from somebody else, too: it is
short and flat, has no aliases, and its defaults list does not multiply it without end. An
interpolation may name another setting, and multiplies nothing without end; no resolver is called,
but for `oc.env` in a folder or a tracker's setting on a command line.
"""

import copy
import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader

from dpbench.runs.config import search_path
from dpbench.runs.config.literals import texts_in
from dpbench.system.errors import UserError, first_line
from dpbench.system.validate import quoted

MAX_DEPTH, MAX_READ = 20, 100
"""The most nested brackets, of a file and of an override, and the most files that a file reads."""

NAMED = re.compile(r"\$\{([^{}:$]*)\}")
"""An interpolation of another setting."""

UNESCAPED = re.compile(rf"(?<!\\)(?:\\\\)*{NAMED.pattern}")
"""One that OmegaConf replaces: no odd number of backslashes precedes it."""

EXCEPT = ", except ${oc.env:NAME} in results_dir=, data_dir= and tracker.KEY= on a command line"

ENVIRONMENT = re.compile(r"\$\{oc\.env:[^{}$]*\}")

MAX_EXPANDED, MAX_CHAIN = 1_000_000, 20
"""The most characters of a configuration with its interpolations replaced, and the most of these
that follow one another."""

KeyPath = tuple[str, ...]


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a YAML file; UserError unless it is a valid mapping."""
    settings = read_yaml(path)
    if not isinstance(settings, dict):
        raise UserError(f"{path} must be a mapping of settings, got {quoted(settings)}.")
    return settings


def read_yaml(path: Path) -> Any:
    """What a YAML file has, as OmegaConf reads it, with its interpolations as texts; UserError for
    what cannot be read."""
    try:
        with broken_files_named():
            return copy.deepcopy(_parsed(path, path.read_text(encoding="utf-8")))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}.") from error


@functools.lru_cache(maxsize=1024)
def _parsed(path: Path, text: str) -> Any:
    """What a file with this text has, not to be modified; cached, since to parse YAML takes
    milliseconds, and a search or a table reads the same files for each of its runs."""
    loader = get_yaml_loader()(text)
    loader.name = str(path)  # in the messages of errors
    return loader.get_single_data()


@contextmanager
def broken_files_named() -> Iterator[None]:
    """UserError, with file and line, for a YAML file that cannot be parsed."""
    try:
        yield
    except yaml.YAMLError as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        place = f"{mark.name}, line {mark.line + 1}" if mark else "a file of the configuration"
        raise UserError(f"{place} is not valid YAML: {problem or first_line(error)}.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{search_path.undecodable()} is not UTF-8 text: save it as that."
        ) from error


class AddedFolder(FileConfigSource):
    """A folder of which Hydra reads no file unchecked."""

    @staticmethod
    def scheme() -> str:
        return "added"

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path))
        if path.is_file():  # otherwise the error is Hydra's
            check_file(path)
        return super().load_config(config_path)


def check_file(path: Path) -> None:
    """UserError for a file with more than a command line may have, or that reads too many."""
    depth = 0
    with broken_files_named(), path.open(encoding="utf-8") as file:
        for event in yaml.parse(file, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise UserError(
                    f"{path} is nested more than {MAX_DEPTH} brackets deep: flatten it."
                )
            if isinstance(event, yaml.AliasEvent):
                raise UserError(f"{path} has the alias *{event.anchor}: write its value there.")
            if isinstance(event, yaml.ScalarEvent):
                refuse_resolvers(event.value, str(path))
    _count_read(path, ())


def _count_read(path: Path, within: tuple[Path, ...]) -> int:
    """The number of added files that a file reads by its defaults list, itself included."""
    if path in within:
        raise UserError(f"{path} is in its own defaults list.")
    read, settings = 1, read_yaml(path)
    for name in texts_in(settings.get("defaults") if isinstance(settings, dict) else None):
        if "${" in name:
            raise UserError(f"{path}: {name} in its defaults list must be spelt out.")
        option = name.partition("@")[0].rpartition("/")[2]
        added = (file for _, files in search_path.added_folders() for file, _ in files)
        for found in (file for file in added if file.stem == option):
            read += _count_read(found, (*within, path))
            if read > MAX_READ:
                raise UserError(f"{path} reads more than {MAX_READ} files by its defaults list.")
    return read


def refuse_resolvers(text: str, source: str = "", environment: bool = False) -> None:
    """UserError for a text with an interpolation that names no other setting. source: the file that
    it is in, if any. environment: whether `${oc.env:NAME}` is allowed."""
    rest = NAMED.sub(":", ENVIRONMENT.sub(":", text) if environment else text)
    if "${" in rest:
        raise UserError(
            f"{quoted(text)}{f' in {source}' if source else ''} is refused: an interpolation may "
            "name another setting, such as ${epochs}, but not call a resolver"
            f"{EXCEPT if 'oc.env' in text else ''}."
        )


def check_expansion(config: DictConfig) -> None:
    """UserError for a configuration that its interpolations would multiply beyond memory."""
    _expanded(OmegaConf.to_container(config), (), ())


def _expanded(plain: Any, path: KeyPath, within: tuple[KeyPath, ...]) -> int:
    """The number of characters of the part at a path, with its interpolations replaced."""
    path, part = _part(plain, path)
    # The last first, as it may name those before it.
    named = reversed([*_named(part, path)])
    sizes = (_expanded(plain, other, (*within, path)) for other in named)
    for total in accumulate(sizes, initial=len(repr(part))):
        if total > MAX_EXPANDED or len(within) == MAX_CHAIN:
            where = ".".join(path) or "the configuration"
            raise UserError(f"{where} is too large with its interpolations replaced.")
    return total


def _part(node: Any, path: KeyPath) -> tuple[KeyPath, Any]:
    """The part at a path, or the last one on the way to it if that is a text, and its path."""
    for place, key in enumerate(path):
        try:
            node = node[int(key) if isinstance(node, list) else key]
        except (LookupError, TypeError, ValueError):
            return path[:place], node if isinstance(node, str) else None
    return path, node


def _named(node: Any, path: KeyPath) -> Iterator[KeyPath]:
    """The paths that the interpolations in the part at a path name."""
    if isinstance(node, str):
        for name in UNESCAPED.findall(node):
            name = re.sub(r"[ \t]", "", name)
            dots = len(name) - len(name.lstrip("."))
            if keys := re.findall(r"[^.\[\]]+", name):  # others name nothing
                yield (*(path[:-dots] if dots else ()), *keys)
    parts = dict(enumerate(node)) if isinstance(node, list) else node
    for key, part in parts.items() if isinstance(parts, dict) else ():
        yield from _named(part, (*path, str(key)))
