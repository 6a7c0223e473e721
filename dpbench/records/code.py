"""Which code made a record: a checksum of the source files that its run reaches."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpbench.paths import PACKAGE
from dpbench.records.digest import scientific, with_current_names
from dpbench.records.record import Record

STALE_RECORD = (
    "this record was made by other code than the present one: again=stale repeats the run."
)

KEY = "reached"
"""The key of the checksum in a record's provenance."""

TRAINER = "dpbench.training.trainer"
"""The module that trains all runs."""

IMPORT = re.compile(
    r"^\s*(?:from (dpbench[\w.]*) import (\([^)]*\)|.*)|import (dpbench[\w.]*))", re.M
)


def code_of(config: Mapping[str, Any]) -> str:
    """Twelve hex digits of a checksum of the library's files that a run imports, committed or not.

    They are those of the trainer and of the parts that the configuration names, and all that these
    import: what other methods, data sets or pages change does not matter.
    """
    reached = sorted(_closure([TRAINER, *_targets(scientific(with_current_names(dict(config))))]))
    return _checksum(tuple((path, path.stat().st_mtime_ns) for path in reached))


def is_stale(record: Record) -> bool:
    """Whether other code made a record than its run would reach now; older records do not say."""
    return record.provenance.get(KEY) not in (None, code_of(record.config))


@functools.lru_cache(maxsize=1024)
def _checksum(files: tuple[tuple[Path, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _targets(node: Any) -> Iterator[str]:
    """The modules of every `_target_` in a configuration, however deep."""
    if isinstance(node, Mapping):
        if isinstance(target := node.get("_target_"), str):
            yield target.rpartition(".")[0]
        for part in node.values():
            yield from _targets(part)
    elif isinstance(node, list | tuple):
        for part in node:
            yield from _targets(part)


def _closure(modules: Iterable[str]) -> set[Path]:
    """The files of modules, of all that they import, and of the packages that contain them."""
    reached, waiting = set[Path](), [path for name in modules for path in _files(name)]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _imported(path, path.stat().st_mtime_ns)
    return reached


@functools.lru_cache(maxsize=4096)
def _imported(path: Path, _: int) -> tuple[Path, ...]:
    """The library's files that a file imports; the second argument is when it was changed."""
    names: list[str] = []
    for module, parts, plain in IMPORT.findall(path.read_text(encoding="utf-8")):
        names += [f"{module}.{part}" for part in re.findall(r"\w+", parts)] if module else [plain]
    return tuple(dict.fromkeys(found for name in names for found in _files(name)))


def _files(name: str) -> Iterator[Path]:
    """The file of a module, or of the module that defines a name, and those of its packages."""
    package, *parts = name.split(".")
    if package != PACKAGE.name:
        return
    folder = PACKAGE
    for part in parts:
        yield folder / "__init__.py"
        if (folder / f"{part}.py").exists():
            yield folder / f"{part}.py"
            return
        if not (folder / part / "__init__.py").exists():
            return
        folder = folder / part
    yield folder / "__init__.py"
