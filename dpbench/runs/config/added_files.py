"""YAML files of plug-ins and added folders, which may have no more than a command line.

A folder may come from somebody else. A file of it is as short and flat as an override, has no
resolvers, and neither its aliases nor its defaults list multiply it without end.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf.errors import OmegaConfBaseException

from dpbench.runs.config import search_path
from dpbench.runs.config.interpolations import refuse_resolvers
from dpbench.runs.config.yaml_files import broken_files_named
from dpbench.system.errors import UserError, first_line

MAX_DEPTH = 20
"""The most nested brackets, of a file and of an override."""

MAX_VALUES, MAX_READ = 50_000, 100
"""The most keys and values of a file with its aliases replaced, and files that it reads."""


class AddedFolder(FileConfigSource):
    """A folder of which Hydra reads no file unchecked."""

    @staticmethod
    def scheme() -> str:
        return "added"

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path))
        if path.is_file():  # otherwise the error is Hydra's
            check_file(path)
        try:
            return super().load_config(config_path)
        except OmegaConfBaseException:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {first_line(error)}.") from error


def check_file(path: Path) -> None:
    """UserError for a file with more than a command line may have, or that reads too many."""
    with broken_files_named(), path.open(encoding="utf-8") as file:
        _check_values(path, yaml.parse(file, Loader=yaml.SafeLoader))
    _count_read(path, ())


def _check_values(path: Path, events: Iterable[yaml.Event]) -> None:
    """Check what the file has, before anything of it is built."""
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    values = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = values - before
        elif isinstance(event, yaml.ScalarEvent):
            refuse_resolvers(event.value, str(path))
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor, MAX_VALUES + 1)  # of a part that it is in
        values += isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if values > MAX_VALUES:
            raise UserError(f"{path} has more than {MAX_VALUES:,} values: shorten it.")
        if len(opened) > MAX_DEPTH:
            raise UserError(f"{path} is nested more than {MAX_DEPTH} brackets deep: flatten it.")


def _count_read(path: Path, within: tuple[Path, ...]) -> int:
    """The number of added files that a file reads by its defaults list, itself included."""
    if path in within:
        raise UserError(f"{path} is in its own defaults list.")
    read = 1
    for name in _in_defaults(path):
        for found in _files_named(name):
            read += _count_read(found, (*within, path))
            if read > MAX_READ:
                raise UserError(f"{path} reads more than {MAX_READ} files by its defaults list.")
    return read


def _in_defaults(path: Path) -> Iterator[str]:
    """The names of the options in a file's defaults list; UserError if one is not spelt out."""
    with broken_files_named(), path.open(encoding="utf-8") as file:
        node = yaml.compose(file, Loader=yaml.SafeLoader)
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, entries in pairs:
        if key.value == "defaults" and isinstance(entries, yaml.SequenceNode):
            for name in _scalars(entries):
                if "${" in name:
                    raise UserError(f"{path}: {name} in its defaults list must be spelt out.")
                yield name.partition("@")[0].rpartition("/")[2]


def _scalars(node: yaml.Node) -> Iterator[str]:
    if isinstance(node, yaml.ScalarNode):
        yield node.value
    for part in node.value if isinstance(node, yaml.CollectionNode) else ():
        for inner in part if isinstance(part, tuple) else (part,):
            yield from _scalars(inner)


def _files_named(name: str) -> Iterator[Path]:
    """The added files that an option of that name may be."""
    for _, files in search_path.added_folders():
        yield from (path for path, _ in files if path.stem == name)
