"""The folders with options: conf/, the studies, plug-ins, and those that a command line adds.

As in Hydra, `--config-dir DIR` and `hydra.searchpath=[DIR,...]` add folders with the layout of
conf/. Their YAML files may only name targets that our files or a plug-in declare, and are never
read in place of a file of ours. The first lines of a file have its display name,
`# Name: DP-SGD` of a method, and `# Kind: images` of a data set.
"""

import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import dropwhile, takewhile
from pathlib import Path

from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.plugins import plugins
from dpbench.runs.config.settings import key_of
from dpbench.system.errors import UserError, nearest
from dpbench.system.paths import conf_folder, option_folders
from dpbench.system.validate import path_of, quoted

KEY = "hydra.searchpath"
FLAGS = ("--config-dir", "-cd")
FILE, PACKAGE = "file://", "pkg://"

MAX_BYTES = 100_000
"""The largest file of an added folder."""

_added: ContextVar[tuple[Path, ...]] = ContextVar("added", default=())

Folders = tuple[tuple[Path, tuple[tuple[Path, int], ...]], ...]
"""Folders in the order in which they are searched, and when the files in each were changed."""

EXPERIMENTS = "experiment"
"""The folder of experiments, which stand for overrides."""

FIRST = re.compile(r"#\s*(Name|Kind):\s*(\S.*?)\s*$")
PLAIN = re.compile(r"\w+")


def groups() -> tuple[str, ...]:
    """The configuration groups, `table` among them."""
    return _groups(conf_folder())


@functools.cache
def _groups(conf: Path) -> tuple[str, ...]:
    folders = {path.name for path in conf.iterdir() if path.is_dir()}
    return tuple(sorted(folders - {EXPERIMENTS}))


def folders() -> Folders:
    """The folders with options; ours are taken not to change while a process runs."""
    return (*((folder, ()) for folder in option_folders()), *added_folders())


def added_folders() -> Folders:
    """The folders with options that are not ours: of plug-ins and of a command line."""
    others = (*(folder for plugin in plugins() for folder in plugin.option_folders), *_added.get())
    return tuple((folder, _changed(folder)) for folder in others)


def own_file_of(group: str, option: str) -> Path | None:
    """The file of an option of ours; None if there is none."""
    return _first_file(option_folders(), group, option)


@contextmanager
def searching(added: Iterable[Path]) -> Iterator[None]:
    """Search these folders too, within the context."""
    token = _added.set(tuple(dict.fromkeys((*_added.get(), *added))))
    try:
        yield
    finally:
        _added.reset(token)


def split_folders(arguments: Sequence[str]) -> tuple[tuple[Path, ...], list[str]]:
    """The folders that arguments add, absolute, and the other arguments. UserError for what is not
    a folder."""
    added: list[Path] = []
    others: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.partition("=")
        if flag in FLAGS:
            added.append(_existing(value if equals else (rest.pop(0) if rest else ""), flag))
        elif key_of(argument) == KEY:
            added += (_existing(name, KEY) for name in _values(argument))
        else:
            others.append(argument)
    return tuple(added), others


def as_flags(arguments: Sequence[str] = ()) -> list[str]:
    """The folders that a command line adds, and arguments, as the flags of a command on a page:
    by their names from the working folder, or alone, as pages show no paths."""
    here = Path.cwd()
    added = dict.fromkeys((*_added.get(), *split_folders(arguments)[0]))
    names = (path.relative_to(here) if path.is_relative_to(here) else path.name for path in added)
    return [f"{FLAGS[0]}={name}" for name in names]


def as_overrides(added: Iterable[Path]) -> list[str]:
    """The folders as one override, which also reaches other processes; none without folders."""
    names = [str(folder).replace("\\", "\\\\").replace("'", "\\'") for folder in added]
    return [f"{KEY}=['" + "','".join(names) + "']"] if names else []


@functools.cache
def check_folders(added: Folders) -> None:
    """UserError for files that are never read: of an unknown group, of a name taken, too large, or
    nothing to read at all, as a pipe."""
    ours = option_folders()
    known = {*groups(), EXPERIMENTS}
    sources = {
        path.relative_to(folder): folder for folder in ours for path in folder.rglob("*.yaml")
    }
    for folder, files in added:
        for path, _ in files:
            name = path.relative_to(folder)
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                raise UserError(f"{path} is not a file of at most {MAX_BYTES:,} bytes.")
            if name.parts[0] not in known:
                raise UserError(
                    f"{path} is not in the folder of a group: {nearest(name.parts[0], known)}"
                )
            if sources.setdefault(name, folder) != folder:
                raise UserError(
                    f"{path} has the name of an option in {sources[name]}: rename the file."
                )


def file_of(group: str, option: str) -> Path | None:
    """The file of an option; None if there is none."""
    return _first_file((folder for folder, _ in folders()), group, option)


def _first_file(searched: Iterable[Path], group: str, option: str) -> Path | None:
    paths = (folder / group / f"{option}.yaml" for folder in searched)
    return next((path for path in paths if path.is_file()), None)


def options(group: str) -> list[str]:
    """The names of the options in a configuration group; also of experiments."""
    check_folders(added_folders())
    return sorted(
        {path.stem for folder, _ in folders() for path in (folder / group).glob("*.yaml")}
    )


def description(group: str, option: str) -> str:
    """The comment that the file of an option begins with; empty if there is none."""
    path = file_of(group, option)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path else []
    begun = dropwhile(lambda line: line.strip() in ("", "---"), lines)
    comment = takewhile(lambda line: line.startswith("#"), begun)
    texts = (line.removeprefix("#").removeprefix(" ") for line in comment)
    return "\n".join(line for line in texts if not line.startswith("@package"))


def undecodable() -> Path | None:
    """The first YAML file that is not UTF-8 text, if any."""
    for path in (path for folder, _ in folders() for path in sorted(folder.rglob("*.yaml"))):
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return path
    return None


def _values(argument: str) -> list[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        (override,) = OverridesParser.create().parse_overrides([argument])
        values = override.value()
    except (HydraException, ValueError):
        values = None
    if not isinstance(values, list):
        raise UserError(f"{KEY} must be a list of folders, got {quoted(argument)}.")
    return [str(value) for value in values]


def _existing(name: str, key: str) -> Path:
    if name.startswith(PACKAGE):
        raise UserError(
            f"{key}: {name} is refused: a package adds options by an entry point of the group "
            "dpbench.plugins."
        )
    folder = path_of(key, name.removeprefix(FILE)).expanduser().absolute()
    if not folder.is_dir():
        raise UserError(f"{key}: {folder} is not a folder.")
    for place in (folder, *(folder / group for group in groups())):
        if place.is_dir() and not os.access(place, os.R_OK | os.X_OK):
            raise UserError(f"{key}: {place} cannot be read: change its permissions.")
    return folder


def _changed(folder: Path) -> tuple[tuple[Path, int], ...]:
    """The YAML files with their modification times, except in hidden folders, as an editor's."""
    changed = []
    for path in sorted(folder.rglob("*.yaml")):
        if not any(part[0] == "." for part in path.relative_to(folder).parts):
            with suppress(OSError):  # deleted in the meantime, or a link to itself
                changed.append((path, path.stat().st_mtime_ns))
    return tuple(changed)


def method_name(method: str) -> str:
    """The display name of a method; the name of the option if its file gives none."""
    return _said("method", method, "Name") or method


OTHER_DATA = "other data"


def data_kind(dataset: str) -> str:
    """The kind of a data set, as `images`; "other data" if its file gives none."""
    return _said("dataset", dataset, "Kind") or OTHER_DATA


def with_variant(name: str, variant: str) -> str:
    """The name with the variant of the method, unless it is the corrected one."""
    return name if variant == CORRECTED else f"{name} ({variant})"


def _said(group: str, option: str, word: str) -> str | None:
    # Options are file names; a record may contain anything.
    path = file_of(group, option) if PLAIN.fullmatch(option) else None
    return _first_line(path).get(word) if path else None


@functools.cache
def _first_line(path: Path) -> dict[str, str]:
    match = FIRST.match(path.read_text(encoding="utf-8").partition("\n")[0])
    return {match[1]: match[2]} if match else {}
