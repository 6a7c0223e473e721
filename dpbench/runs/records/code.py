"""The code that produced a record: a checksum of the files that may matter to it, and plug-ins."""

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from dpbench.learning.metrics.registry import MODULES, added_packages, parse_name
from dpbench.runs.config.buildable import declared
from dpbench.runs.config.plugins import plugin_of, plugins
from dpbench.runs.config.settings import NAMED_GROUPS
from dpbench.runs.records.digest import scientific, with_current_names
from dpbench.runs.records.record import Record
from dpbench.system.paths import PACKAGE, installed_folder
from dpbench.system.public_names import module_name

STALE_RECORD = (
    "this record was produced by a different version of the code; rerun it with again=stale."
)
STALE_RECORDS = (
    "{stale} of {all} records were produced by a different version of the code; rerun them with "
    "again=stale."
)

CHECKSUM_KEY = "reached"
"""The key of the checksum in a record's provenance."""

ROOMS = ("learning", "privacy", "runs/diagnostics", "runs/training", "step")
"""The rooms whose code decides what a run computes."""

PLUGIN_PARTS_KEY = "built"
"""The key of the plug-ins' parts in a record's provenance."""


def code_of(config: Mapping[str, Any], metrics: Iterable[str] = ()) -> str:
    """Twelve hex digits of a checksum of the files that may matter to a run, committed or not.

    metrics: the names of those that it has. The files are the rooms of training, without the
    modules of parts and metrics that the run does not have, and the plug-ins that it has parts or
    metrics of.
    Other methods, other data sets, other metrics and pages do not matter.
    """
    return _checksum(tuple((path, path.stat().st_mtime_ns) for path in _files(config, metrics)))


def imported_code_of(config: Mapping[str, Any], metrics: Iterable[str] = ()) -> str:
    """Like `code_of`, for the files as this process first read them. A notebook keeps running what
    it imported, even if the files change later."""
    return _checksum(tuple((path, None) for path in _files(config, metrics)))


def _files(config: Mapping[str, Any], metrics: Iterable[str]) -> Iterator[Path]:
    """The files that may matter to a run, in the same order everywhere."""
    bases = {parsed.base or parsed.split for parsed in map(parse_name, metrics)}
    targets = [*_targets(scientific(with_current_names(dict(config)))).values()]
    used = {plugin.root for name in targets if (plugin := plugin_of(name))}
    used |= {root for name, root in _roots_of_metrics().items() if name in bases}
    others = _modules_of_other_parts(_modules(targets)) | _modules_of_other_metrics(bases)
    for folder in (*(PACKAGE / room for room in ROOMS), *sorted(used)):
        yield from (path for path in sorted(folder.rglob("*.py")) if path not in others)


def _modules_of_other_parts(own: Set[Path]) -> set[Path]:
    """The files of methods, models and data sets but those of a run's own, and their imports."""
    texts = "".join(path.read_text(encoding="utf-8") for path in own if path.exists())
    rooms = [PACKAGE / room for room in ("step/methods", "learning/models", "learning/data")]
    others = _modules(name for group in NAMED_GROUPS for name in declared(group)) - own
    return {
        path
        for path in others
        if path.parent in rooms and f"{path.parent.name}.{path.stem} import" not in texts
    }


def _roots_of_metrics() -> dict[str, Path]:
    """The folder of the package that each metric of a plug-in is in."""
    packages = added_packages().items()
    return {name: root for name, package in packages if (root := installed_folder(package))}


def _modules_of_other_metrics(bases: Set[str]) -> set[Path]:
    """The files of metrics that a run does not have."""
    own = {module for module, metrics in MODULES.items() if bases & metrics.keys()}
    files = (PACKAGE / "learning" / "metrics" / "builtin").glob("*.py")
    return {path for path in files if path.stem not in own}


def _modules(targets: Iterable[str]) -> set[Path]:
    parts = (module_name(target).split(".")[1:-1] for target in targets)
    return {PACKAGE.joinpath(*names).with_suffix(".py") for names in parts if names}


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
    return record.provenance.get(CHECKSUM_KEY) not in (None, code_of(record.config, record.metrics))


def stale_among(records: Sequence[Record]) -> str:
    """How many of several records are stale, as a sentence; "" if none is."""
    stale = sum(map(is_stale, records))
    return STALE_RECORDS.format(stale=stale, all=len(records)) if stale else ""


@functools.lru_cache(maxsize=1024)
def _checksum(files: tuple[tuple[Path, int | None], ...]) -> str:
    return checksum_of({_name_of(path): _read(path, changed_at) for path, changed_at in files})


@functools.cache
def _read(path: Path, changed_at: int | None) -> bytes:
    """A file as it was when it was first read after a change; None: ever."""
    return path.read_bytes()


def checksum_of(contents: Mapping[Path, bytes]) -> str:
    """Twelve hex digits of a checksum of files' names and contents."""
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0".encode() + content)
    return digest.hexdigest()[:12]


def _name_of(path: Path) -> Path:
    """The path within the library, or within a plug-in with the package's name."""
    roots = (*(plugin.root for plugin in plugins()), *_roots_of_metrics().values())
    return path.relative_to(next((r.parent for r in roots if path.is_relative_to(r)), PACKAGE))


def _targets(node: Any, path: str = "") -> dict[str, str]:
    if isinstance(node, Mapping):
        targets = {path: target} if isinstance(target := node.get("_target_"), str) else {}
        for key, part in node.items():
            targets |= _targets(part, f"{path}.{key}" if path else str(key))
        return targets
    if isinstance(node, list | tuple):
        return _targets(dict(enumerate(node)), path)
    return {}
