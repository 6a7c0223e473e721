"""What an interpolation may do, on a command line and in a file: name another setting.

A command or a file may come from somebody else. So no resolver is called, but for `oc.env` in a
folder or a tracker's setting on a command line, where whoever gives the command names a variable of
their own environment; and no interpolation multiplies a configuration without end.
"""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dpbench.system.errors import UserError
from dpbench.system.validate import quoted

NAMED = re.compile(r"\$\{([^{}:$]*)\}")
"""An interpolation of another setting."""

EXCEPT = ", except ${oc.env:NAME} in results_dir=, data_dir= and tracker.KEY= on a command line"

ENVIRONMENT = re.compile(r"\$\{oc\.env:[^{}$]*\}")

MAX_EXPANDED, MAX_CHAIN = 1_000_000, 20
"""The most characters of a configuration with its interpolations replaced, and the most of these
that follow one another."""

Path = tuple[str, ...]


def refuse_resolvers(text: str, source: str = "", environment: bool = False) -> None:
    """UserError for a text with an interpolation that names no other setting.

    source: the file that it is in, if any. environment: whether `${oc.env:NAME}` is allowed.
    """
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


def _expanded(plain: Any, path: Path, within: tuple[Path, ...]) -> int:
    """The number of characters of the part at a path, with its interpolations replaced."""
    total = 0
    for text in _leaves(_part(plain, path)):
        total += 1 + len(text)
        for name in filter(None, NAMED.findall(text)):  # `${}` names nothing
            if len(within) < MAX_CHAIN:
                total += _expanded(plain, tuple(re.findall(r"[^.\[\]]+", name)), (*within, path))
        if total > MAX_EXPANDED or len(within) == MAX_CHAIN:
            where = ".".join(path or within[-1]) or "the configuration"
            raise UserError(f"{where} is too large with its interpolations replaced.")
    return total


def _part(node: Any, path: Path) -> Any:
    """The part at a path, or the last one on the way to it."""
    for key in path:
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            return node if isinstance(node, str) else None
    return node


def _leaves(node: Any) -> list[str]:
    """The keys and values of a part that are text, at any depth; other values as empty texts."""
    found: list[str] = []
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            found += map(str, node)
            stack += node.values()
        elif isinstance(node, list):
            stack += node
        else:
            found.append(node if isinstance(node, str) else "")
    return found
