"""Plug-ins: installed packages that add options and tables, by entry points `dpbench.plugins`.

The entry point `NAME = "mypackage"` says that mypackage has a folder conf/ with the layout of ours,
or is a study, as those in our benchmarks/. Nothing of the package is imported until a target of it
is built, which a YAML file there has to name.
"""

import functools
import re
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from dpbench.system.errors import UserError, warn
from dpbench.system.paths import PACKAGE, benchmarks_folder, installed_folder

GROUP = "dpbench.plugins"


@dataclass(frozen=True)
class Plugin:
    """A package that is a plug-in, the folder of its modules, and what it was installed from."""

    package: str
    folder: Path
    distribution: str
    version: str

    @property
    def studies(self) -> tuple[Path, ...]:
        """The folders of its studies: itself if it has tables and no conf/, or in benchmarks/."""
        if (self.folder / "table").is_dir() and not (self.folder / "conf").is_dir():
            return (self.folder,)
        return tuple(path for path in sorted(self.folder.glob("benchmarks/*")) if path.is_dir())

    @property
    def option_folders(self) -> tuple[Path, ...]:
        """The folders of its options, by group: conf/ and its studies."""
        return tuple(path for path in (self.folder / "conf", *self.studies) if path.is_dir())

    @property
    def root(self) -> Path:
        """The folder of the outermost package that contains it."""
        return [self.folder, *self.folder.parents][self.package.count(".")]

    def contains(self, name: str) -> bool:
        """Whether the name is defined in the package, or in a module of it."""
        return name.startswith(f"{self.package}.")


def plugins() -> tuple[Plugin, ...]:
    """The plug-ins on Python's path, by name; a warning for each that cannot be used."""
    return _plugins(tuple(sys.path))


def plugin_of(name: str) -> Plugin | None:
    """The plug-in that contains the name."""
    return next((plugin for plugin in plugins() if plugin.contains(name)), None)


def published_files() -> dict[str, Path]:
    """The files of published numbers, ours and those of plug-ins, by their names: STUDY/NAME.csv.
    UserError for two of one name, as a table would be compared with another paper's numbers."""
    studies = sorted(benchmarks_folder().iterdir())
    studies += [study for plugin in plugins() for study in plugin.studies]
    files: dict[str, Path] = {}
    for path in (path for study in studies for path in study.glob("*.csv")):
        first = files.setdefault(f"{path.parent.name}/{path.name}", path)
        if first != path:
            raise UserError(f"{path} has the name of {first}: rename the folder of the study.")
    return files


@functools.cache
def _plugins(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    found = {entry.value: entry for entry in entry_points(group=GROUP)}
    return tuple(filter(None, (_plugin(found[value]) for value in sorted(found))))


def _plugin(entry: EntryPoint) -> Plugin | None:
    folder = _folder(entry.value)
    plugin = (
        folder and entry.dist and Plugin(entry.value, folder, entry.dist.name, entry.dist.version)
    )
    if not plugin or not plugin.option_folders:
        warn(
            f"the plug-in {entry.name} is ignored: {entry.value} is not a package with a folder "
            "conf/ or table/; install it again, or correct its entry point."
        )
        return None
    return plugin


def _folder(package: str) -> Path | None:
    outer, *inner = package.split(".")
    if not re.fullmatch(r"\w+(\.\w+)*", package) or outer == PACKAGE.name:
        return None
    folder = installed_folder(outer)
    return folder and folder.joinpath(*inner)
