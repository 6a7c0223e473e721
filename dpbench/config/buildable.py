"""What a configuration may build, and the building itself.

A `_target_` names a class or function that is called with the settings beside it. Which names may
stand there is declared: for each group by the YAML files of conf/GROUP, for all groups by PARTS,
and for `optimizer` by what torch.optim has. A name that can only be imported is refused, and so is
one that its module merely imports itself: a configuration, which may come out of somebody else's
record, chooses among parts and runs nothing else. Settings must be of the types that constructors
annotate.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dpbench.errors import UserError, nearest
from dpbench.paths import conf_folder
from dpbench.validate import quoted, typed

TARGET, PARTIAL = "_target_", "_partial_"

OPTIMIZER = "optimizer"
"""The group whose part waits for the parameters: it has `_partial_`, and no other has."""

PARTS = tuple(
    f"dpbench.mechanism.schedules.{name}"
    for name in ("Constant", "Cosine", "Linear", "Pieces", "Stairs")
)
"""What may be built in any group, whether a file of conf/ uses it or not."""


def build(group: str, node: Any) -> Any:
    """What a group's part of a configuration describes; None for nothing.

    Raises UserError for what the group does not declare, and for settings that do not fit.
    """
    check(group, node)
    return _built(group, node) if node != {} else None


def check(group: str, node: Any) -> None:
    """UserError for a target that the group does not declare, or another key with a meaning.

    Keys that begin with an underscore tell Hydra how to build, and are no settings.
    """
    for place, part in _mappings(group, node):
        name = str(part.get(TARGET))
        if TARGET in part and name not in declared(group):
            raise UserError(
                f"{place}.{TARGET}={quoted(name)} is refused: no file of conf/{group} builds it."
            )
        if (PARTIAL in part) != (place == OPTIMIZER) or part.get(PARTIAL, True) is not True:
            raise UserError(f"{place}.{PARTIAL} is not for changing: leave it as conf/ has it.")
        for key in part.keys() - {TARGET, PARTIAL}:
            if str(key).startswith("_"):
                raise UserError(f"{place}.{key} is refused: no setting begins with _.")


def function(group: str, node: dict) -> Callable:
    """The function that a node names, to be called by what knows its arguments; see `build`."""
    check(group, node)
    return _resolved(str(node.get(TARGET)))


def settings_of(node: dict) -> dict:
    """What stands beside the name of what is built or called."""
    return {key: value for key, value in node.items() if key != TARGET}


def declared(group: str) -> frozenset[str]:
    """The names that may be built in a group."""
    optimizers = _optimizers() if group == OPTIMIZER else frozenset()
    return frozenset(PARTS) | _named_in(conf_folder() / group) | optimizers


@functools.cache
def _named_in(folder: Path) -> frozenset[str]:
    """The targets in the YAML files of a folder."""
    texts = (re.sub("#.*", "", p.read_text(encoding="utf-8")) for p in folder.glob("*.yaml"))
    return frozenset(n for text in texts for n in re.findall(rf"\b{TARGET}:\s*([\w.]+)", text))


@functools.cache
def _optimizers() -> frozenset[str]:
    """Those that torch.optim itself offers."""
    import torch

    kind = torch.optim.Optimizer
    found = inspect.getmembers(torch.optim, inspect.isclass)
    return frozenset(f"torch.optim.{n}" for n, c in found if issubclass(c, kind) and c is not kind)


def _mappings(place: str, node: Any) -> Iterator[tuple[str, dict]]:
    """Every mapping in a node, however deep, and where it stands."""
    waiting = [(place, node)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, dict):
            yield place, node
            waiting += [(f"{place}.{key}", value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [(f"{place}[{number}]", value) for number, value in enumerate(node)]


def _built(place: str, node: Any) -> Any:
    if isinstance(node, list):
        return [_built(f"{place}[{number}]", value) for number, value in enumerate(node)]
    if not isinstance(node, dict):
        return node
    settings = {k: _built(f"{place}.{k}", v) for k, v in node.items() if k not in (TARGET, PARTIAL)}
    if TARGET not in node:
        return settings
    maker = _resolved(str(node[TARGET]))
    if PARTIAL in node:
        check_settings(maker, settings, f"{place}.", given_later=1)
        return functools.partial(maker, **settings)
    check_settings(maker, settings, f"{place}.")
    return maker(**settings)


def _resolved(name: str) -> Callable:
    """The class or function of a declared name; UserError unless it is defined by that name."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{TARGET}={name} names nothing that can be built: {error}.") from error
    where = f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', '')}"
    if name not in _optimizers() and where != name:
        raise UserError(f"{TARGET}={name} is refused: its module does not define it.")
    return found


def check_settings(
    maker: Callable, settings: dict[str, Any], prefix: str, given_later: int = 0
) -> None:
    """UserError for settings that a constructor does not have, lacks, or cannot take.

    prefix: of their names in sentences; given_later: leading parameters that are no settings.
    """
    parameters = dict([*_parameters(maker).items()][given_later:])
    for key, value in settings.items():
        if key not in parameters:
            raise UserError(f"{prefix}{key} is not a setting: {nearest(key, parameters)}")
        typed(f"{prefix}{key}", value, parameters[key].annotation)
    for key, parameter in parameters.items():
        if key not in settings and parameter.default is parameter.empty:
            raise UserError(f"{prefix}{key} is missing: set it to a value.")


@functools.cache
def _parameters(maker: Callable) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(maker, eval_str=True).parameters)
