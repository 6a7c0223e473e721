"""Public names, by which records, YAML files and plug-ins refer to the library's modules.

`dpbench.clipping.functions` never changes; the module itself lies in a group of rooms,
`dpbench.step.clipping.functions`. The studies in benchmarks/ are imported as `dpbench.benchmarks`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from dpbench.system.errors import UserError
from dpbench.system.paths import BENCHMARKS, PACKAGE, benchmarks_folder

GROUPS = {
    "learning": ("data", "metrics", "models"),
    "step": ("clipping", "gradients", "mechanism", "methods"),
    "runs": ("config", "diagnostics", "execution", "figures", "records", "training"),
    "comparison": ("compare", "dashboard", "reproduce", "search", "tables", "verify"),
}
"""The rooms of each group, by whose names alone they are public."""

GROUP_OF = {room: group for group, rooms in GROUPS.items() for room in rooms}

LIBRARY = PACKAGE.name


def module_name(public: str) -> str:
    """The name of a module, or of what it defines, by its public name."""
    library, _, rest = public.partition(".")
    group = GROUP_OF.get(rest.partition(".")[0]) if library == LIBRARY else None
    return f"{library}.{group}.{rest}" if group else public


def public_name(name: str) -> str:
    """The public name of a module, or of what it defines."""
    library, _, rest = name.partition(".")
    group, _, inner = rest.partition(".")
    return f"{library}.{inner}" if library == LIBRARY and group in GROUPS else name


class PublicNames(MetaPathFinder, Loader):
    """Imports modules by their public names: the same modules, not copies."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == f"{LIBRARY}.{BENCHMARKS}":
            return _studies(fullname)
        return ModuleSpec(fullname, self) if module_name(fullname) != fullname else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(module_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; it has been executed by its real name."""
        if module.__spec__:
            module.__spec__ = module.__spec__.loader_state


def _studies(name: str) -> ModuleSpec | None:
    """The package of the studies; None where there are none, as in a part of a checkout."""
    try:
        folder = benchmarks_folder()
    except UserError:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


def install() -> None:
    """Let public names be imported; before Python's own finders, which would make copies."""
    if not any(isinstance(finder, PublicNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, PublicNames())
