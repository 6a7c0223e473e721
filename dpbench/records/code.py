"""The code that produced a record: a checksum of the files that its run imports, and plug-ins."""

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dpbench.config.plugins import plugin_of, plugins
from dpbench.records.digest import scientific, with_current_names
from dpbench.records.record import Record
from dpbench.system.paths import PACKAGE

STALE_RECORD = (
    "this record was produced by a different version of the code; rerun it with again=stale."
)

CHECKSUM_KEY = "reached"
"""The key of the checksum in a record's provenance."""

TRAINER = "dpbench.training.trainer"
"""The module that trains all runs."""

PLUGIN_PARTS_KEY = "built"
"""The key of the plug-ins' parts in a record's provenance."""

IMPORT = re.compile(r"^\s*(?:from (\.*[\w.]*) import (\([^)]*\)|.*)|import (.*))", re.M)


def code_of(config: Mapping[str, Any]) -> str:
    """Twelve hex digits of a checksum of the files that a run imports, committed or not.

    These are the trainer, the parts that the configuration names, and everything that they import
    from the library and from plug-ins. Changes to other methods, data sets or pages do not matter.
    """
    return _checksum(tuple((path, path.stat().st_mtime_ns) for path in _reached(config)))


def imported_code_of(config: Mapping[str, Any]) -> str:
    """Like `code_of`, for the files as this process first read them.

    A notebook keeps running what it imported, even if the files change later.
    """
    return _first_checksum(_reached(config))


def _reached(config: Mapping[str, Any]) -> tuple[Path, ...]:
    """The files that a run imports, sorted."""
    targets = _targets(scientific(with_current_names(dict(config)))).values()
    modules = frozenset([TRAINER, *(target.rpartition(".")[0] for target in targets)])
    searched = modules, tuple(_roots().items())
    # Imports are followed again if a file was changed, or one was added to a folder or removed.
    if searched not in _found or _changed_at(_found[searched].times) != _found[searched].times:
        files = tuple(sorted(_closure(modules)))
        _found[searched] = ImportClosure(
            files, _changed_at({*files, *(file.parent for file in files)})
        )
    return _found[searched].files


class ImportClosure(NamedTuple):
    """Files found by following imports, and when they and their folders were last modified."""

    files: tuple[Path, ...]
    times: Mapping[Path, int]


_found: dict[tuple, ImportClosure] = {}


def _changed_at(paths: Iterable[Path]) -> dict[Path, int]:
    """Modification times by path; 0 for a file that is gone."""
    times = {}
    for path in paths:
        try:
            times[path] = os.stat(path).st_mtime_ns
        except FileNotFoundError:
            times[path] = 0
    return times


@functools.lru_cache(maxsize=1024)
def _first_checksum(files: tuple[Path, ...]) -> str:
    return _hex({_name_of(path): _first_read(path) for path in files})


@functools.cache
def _first_read(path: Path) -> bytes:
    return path.read_bytes()


def built_by_plugins(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The parts that plug-ins built, by path in the configuration: target, package, version."""
    parts = (
        (path, name, plugin_of(name)) for path, name in _targets(scientific(dict(config))).items()
    )
    return {
        path: {"target": name, "package": plugin.distribution, "version": plugin.version}
        for path, name, plugin in parts
        if plugin
    }


def is_stale(record: Record) -> bool:
    """Whether a record is by other code than its run would import now; older ones do not say."""
    return record.provenance.get(CHECKSUM_KEY) not in (None, code_of(record.config))


@functools.lru_cache(maxsize=1024)
def _checksum(files: tuple[tuple[Path, int], ...]) -> str:
    return _hex({_name_of(path): path.read_bytes() for path, _ in files})


def _hex(contents: Mapping[Path, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0".encode() + content)
    return digest.hexdigest()[:12]


def _name_of(path: Path) -> Path:
    """The path within the library, or within a plug-in with the package's name."""
    root = next(root for root in _roots().values() if path.is_relative_to(root))
    return path.relative_to(PACKAGE if root == PACKAGE else root.parent)


def _roots() -> dict[str, Path]:
    """The folders of the library and of plug-ins, by the names of their packages."""
    return {**{plugin.root.name: plugin.root for plugin in plugins()}, PACKAGE.name: PACKAGE}


def _targets(node: Any, path: str = "") -> dict[str, str]:
    """Every `_target_` in a configuration, however deep, by its dotted path."""
    if isinstance(node, Mapping):
        targets = {path: target} if isinstance(target := node.get("_target_"), str) else {}
        for key, part in node.items():
            targets |= _targets(part, f"{path}.{key}" if path else str(key))
        return targets
    if isinstance(node, list | tuple):
        return _targets(dict(enumerate(node)), path)
    return {}


def _closure(modules: Iterable[str]) -> set[Path]:
    """The files of modules, of all that they import, and of the packages that contain them."""
    reached, named, waiting = set[Path](), set[str](), [*modules]
    while waiting:
        name = waiting.pop()
        if name in named:
            continue
        named.add(name)
        for path in {*_files(name)} - reached:
            reached.add(path)
            waiting += _imported(path, path.stat().st_mtime_ns)
    return reached


@functools.lru_cache(maxsize=4096)
def _imported(path: Path, _: int) -> tuple[str, ...]:
    """The names that a file imports from the library and from plug-ins.

    The second argument is its modification time, for the cache.
    """
    names: list[str] = []
    for module, parts, plain in IMPORT.findall(path.read_text(encoding="utf-8")):
        if module:
            absolute = _absolute(path, module)
            names += [f"{absolute}.{part}" for part in re.findall(r"\w+", parts)]
        else:
            names += [words.split()[0] for words in plain.split(",") if words.strip()]
    packages = {*_roots()}
    return tuple(name for name in dict.fromkeys(names) if name.partition(".")[0] in packages)


def _absolute(path: Path, module: str) -> str:
    """The full name of a module that a file imports, possibly by a relative name."""
    level = len(module) - len(module.lstrip("."))
    if not level:
        return module
    package = path.parents[level - 1]
    root = next((root for root in _roots().values() if package.is_relative_to(root)), package)
    return ".".join([root.name, *package.relative_to(root).parts, *module.strip(".").split()])


def _files(name: str) -> Iterator[Path]:
    """The file of a module, or of the module that defines a name, and those of its packages."""
    package, *parts = name.split(".")
    if (folder := _roots().get(package)) is None:
        return
    for part in parts:
        yield folder / "__init__.py"
        if (folder / f"{part}.py").exists():
            yield folder / f"{part}.py"
            return
        if not (folder / part / "__init__.py").exists():
            return
        folder = folder / part
    yield folder / "__init__.py"
