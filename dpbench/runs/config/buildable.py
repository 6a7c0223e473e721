"""Instantiates the parts of a configuration, from an allow-list of targets.

A `_target_` names a class or function that is called with the settings beside it. Allowed are, for
each group, those in our YAML files of it and those of a plug-in in its own, for all groups PARTS,
for methods METHOD_PARTS, and for `optimizer` the classes of torch.optim. All else, and names that a
module merely imports, are refused: a configuration may come from somebody else's record, and must
not run arbitrary code. Settings must have the types that constructors annotate.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from dpbench.runs.config.plugins import Plugin, plugin_of, plugins
from dpbench.system.errors import UserError, first_line, nearest
from dpbench.system.paths import option_folders
from dpbench.system.public_names import public_name
from dpbench.system.validate import fits, quoted, typed

TARGET, PARTIAL = "_target_", "_partial_"

OPTIMIZER = "optimizer"
"""The only group with `_partial_`: an optimiser is constructed later, with the parameters."""

PARTS = tuple(
    f"dpbench.mechanism.schedules.{name}"
    for name in ("Constant", "Cosine", "Linear", "Pieces", "Stairs")
)
"""Targets that are allowed in every group."""

METHOD_PARTS = (
    "dpbench.methods.dpsgd.fixed_clip",
    *(f"dpbench.clipping.functions.{n}" for n in ("Abadi", "Automatic", "Global", "Normalise")),
)
"""Targets that are allowed in methods beside those in conf/method: parts for new methods."""


def build(group: str, node: Any) -> Any:
    """The object that a group's node of a configuration describes; None for an empty node. Raises
    UserError for a target that the group does not declare, and for unsuitable settings."""
    check(group, node)
    return _instantiate(group, node) if node != {} else None


def build_as(hint: Any, group: str, node: Any) -> Any:
    """The object of an annotated type that a group's node describes; see `build`. UserError for an
    object of another type, and for a node without a target."""
    built = build(group, node)
    if not fits(built, hint) and not (isinstance(node, dict) and TARGET in node):
        raise UserError(
            f"{group} has no {TARGET} (the class or function to build); got {quoted(node)}."
        )
    typed(group, built, hint)
    return built


def check(group: str, node: Any) -> None:
    """UserError for a target that the group does not declare, or another key that begins with _. To
    Hydra such keys are instructions, not settings."""
    for path, mapping in _mappings(group, node):
        name = str(mapping.get(TARGET))
        if TARGET in mapping and not _is_declared(group, name):
            raise UserError(
                f"{path}.{TARGET}={quoted(name)} is refused: no file in conf/{group} names it"
                f"{', of dpbench or of a plug-in' if plugins() else ''}; {_hint(group, name)}"
            )
        if path == OPTIMIZER and PARTIAL not in mapping:
            raise UserError(f"{path}.{PARTIAL} is missing: write {PARTIAL}: true beside {TARGET}.")
        if (PARTIAL in mapping) != (path == OPTIMIZER) or mapping.get(PARTIAL, True) is not True:
            raise UserError(f"{path}.{PARTIAL} is refused: leave it as it is in conf/.")
        for key in mapping.keys() - {TARGET, PARTIAL}:
            # A mapping without a target may have the names of somebody's columns as keys.
            if str(key).startswith("_") and (TARGET in mapping or str(key).endswith("_")):
                raise UserError(f"{path}.{key} is refused: no setting begins with _.")


def _hint(group: str, name: str) -> str:
    if name.startswith("dpbench."):
        return nearest(name, declared(group))
    return "code of your own comes in a plug-in, and code of others in theirs (docs/plugins.md)."


def function(group: str, node: dict) -> Callable:
    """The function that a node names, for callers that pass their own arguments; see `build`."""
    check(group, node)
    return _resolve(str(node.get(TARGET)))


def takes(group: str, name: str, setting: str) -> bool:
    """Whether a target that the group declares has a parameter for a setting."""
    if not _is_declared(group, name):
        return False
    parameters = [*_parameters(_resolve(name))]
    return setting in parameters[group == OPTIMIZER :]  # an optimiser's first are the weights


def settings_of(node: dict) -> dict:
    """The settings of a node, without its target."""
    return {key: value for key, value in node.items() if key != TARGET}


def declared(group: str) -> frozenset[str]:
    """The targets that are allowed in a group."""
    optimizers = _optimizers() if group == OPTIMIZER else frozenset()
    parts = frozenset(PARTS + METHOD_PARTS * (group == "method"))
    ours = parts | _declared_by_us(group, option_folders()) | optimizers
    return ours.union(*(_declared_by(plugin, group) for plugin in plugins()))


@functools.cache
def _declared_by_us(group: str, folders: tuple[Path, ...]) -> frozenset[str]:
    return frozenset().union(*(_targets_in(folder / group) for folder in folders))


def _declared_by(plugin: Plugin, group: str) -> frozenset[str]:
    named: set[str] = set()
    for folder in (folder / group for folder in plugin.option_folders):
        changed_at = (path.stat().st_mtime_ns for path in sorted(folder.glob("*.yaml")))
        named |= _targets_in(folder, *changed_at)
    return frozenset(filter(plugin.contains, named))


def _is_declared(group: str, name: str) -> bool:
    """Whether a group allows a target; imports torch only for optimisers that no file names."""
    return name in _declared_by_us(group, option_folders()) or name in declared(group)


@functools.cache
def _targets_in(folder: Path, *changed_at: int) -> frozenset[str]:
    texts = (re.sub("#.*", "", p.read_text(encoding="utf-8")) for p in folder.glob("*.yaml"))
    return frozenset(n for text in texts for n in re.findall(rf"\b{TARGET}:\s*([\w.]+)", text))


@functools.cache
def _optimizers() -> frozenset[str]:
    import torch

    base = torch.optim.Optimizer
    classes = inspect.getmembers(torch.optim, inspect.isclass)
    return frozenset(
        f"torch.optim.{name}" for name, c in classes if issubclass(c, base) and c is not base
    )


def _mappings(path: str, node: Any) -> Iterator[tuple[str, dict]]:
    stack = [(path, node)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, dict):
            yield path, node
            stack += [(f"{path}.{key}", value) for key, value in node.items()]
        elif isinstance(node, list):
            stack += [(f"{path}[{index}]", value) for index, value in enumerate(node)]


def _instantiate(path: str, node: Any) -> Any:
    if isinstance(node, list):
        return [_instantiate(f"{path}[{index}]", value) for index, value in enumerate(node)]
    if not isinstance(node, dict):
        return node
    settings = {
        key: _instantiate(f"{path}.{key}", value)
        for key, value in node.items()
        if key not in (TARGET, PARTIAL)
    }
    if TARGET not in node:
        return settings
    constructor = _resolve(str(node[TARGET]))
    if PARTIAL in node:
        check_settings(constructor, settings, f"{path}.", skip=1)
        return functools.partial(constructor, **settings)
    check_settings(constructor, settings, f"{path}.")
    return constructor(**settings)


def _resolve(name: str) -> Callable:
    """The class or function of that name; UserError unless its module defines it."""
    module, _, attribute = name.rpartition(".")
    try:
        resolved = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{TARGET}={name} cannot be imported: {error}.") from error
    except SystemExit as error:  # by which a command would end without a word
        raise UserError(f"{TARGET}={name} cannot be imported: its module exits.") from error
    qualified = f"{getattr(resolved, '__module__', '')}.{getattr(resolved, '__qualname__', '')}"
    plugin = plugin_of(name)  # whose package may re-export what its modules define
    of_plugin = plugin is not None and plugin.contains(qualified)
    if public_name(qualified) != name and not of_plugin and name not in _optimizers():
        raise UserError(f"{TARGET}={name} is refused: its module does not define it.")
    return resolved


def check_settings(
    constructor: Callable, settings: dict[str, Any], prefix: str, skip: int = 0
) -> None:
    """UserError for settings that a constructor does not know, that are missing, or mistyped.
    prefix: of their names in messages; skip: leading parameters that are passed later."""
    parameters = dict([*_parameters(constructor).items()][skip:])
    for key, value in settings.items():
        if key not in parameters:
            raise UserError(f"{prefix}{key} is not a setting: {nearest(key, parameters)}")
        with _annotated(constructor):
            typed(f"{prefix}{key}", value, parameters[key].annotation)
    for key, parameter in parameters.items():
        if key not in settings and parameter.default is parameter.empty:
            raise UserError(f"{prefix}{key} is missing: set it to a value.")


@functools.cache
def _parameters(constructor: Callable) -> dict[str, inspect.Parameter]:
    """The parameters that can be passed by name."""
    with _annotated(constructor):
        parameters = inspect.signature(constructor, eval_str=True).parameters
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {key: each for key, each in parameters.items() if each.kind in by_name}


@contextmanager
def _annotated(constructor: Callable) -> Iterator[None]:
    """Turns what annotations raise that name no type into a UserError."""
    try:
        yield
    except (NameError, TypeError, AttributeError, ArithmeticError, SyntaxError) as error:
        name = f"{constructor.__module__}.{constructor.__qualname__}"
        raise UserError(
            f"the annotations of {name} must be types that its module imports, also when it runs "
            f"(not if TYPE_CHECKING): {type(error).__name__}: {first_line(error)}."
        ) from error
