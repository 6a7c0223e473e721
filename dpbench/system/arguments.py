"""A command's own settings: KEY=VALUE arguments as a struct, its help and its completion.

The docstring of the struct says what the command does, and after that, in a paragraph of lines
`KEY: MEANING`, what each field is.
"""

import re
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import (
    check_range,
    one_of,
    path_of,
    spelled_integer,
    spelled_number,
    typed,
)

S = TypeVar("S", bound=Struct)

File = Annotated[Path, "file"]
"""The path of a file, as `path_of` checks it; Path alone is that of a folder."""

MEANING = re.compile(r"^(\w+): (.+(?:\n +.+)*)", re.MULTILINE)

BOOLEANS = ("true", "false")


def read(command: str, kind: type[S], arguments: Iterable[str]) -> S:
    """The settings that KEY=VALUE arguments give, the last of a key; UserError for an unknown key,
    and for a value that is missing, or of another type or range."""
    hints = {field.name: field.type for field in fields(kind)}
    arguments = list(arguments)
    for argument in arguments:
        if (key := argument.partition("=")[0]) not in hints:
            raise UserError(f"{key} is not an argument of {command}: {nearest(key, hints)}")
    texts = key_values(arguments)
    return kind(**{key: _value(key, text, hints[key]) for key, text in texts.items()})


def key_values(arguments: Iterable[str]) -> dict[str, str]:
    """The values of KEY=VALUE arguments; UserError for a missing one."""
    values = {}
    for argument in arguments:
        key, _, values[key] = argument.partition("=")
        if not values[key]:
            raise UserError(f"{key} needs a value: {key}=VALUE.")
    return values


def _value(key: str, text: str, hint: Any) -> Any:
    hint = _given(hint)
    origin, options = get_origin(hint), get_args(hint)
    if choices := _choices(hint):
        named = one_of(key, text, choices)
        return named == "true" if hint is bool else named
    if origin is tuple:
        return tuple(text.split(","))
    if Path in (hint, *options):
        return path_of(key, text, *options[1:])
    if hint is str:
        return text
    value = spelled_integer(text) if int in (hint, *options) else spelled_number(text)
    check_range(key, value, hint)  # first, as it also names the range
    typed(key, value, hint)
    return value


def _given(hint: Any) -> Any:
    """The type of a value that is given: None is only a default."""
    return get_args(hint)[0] if get_origin(hint) in (Union, UnionType) else hint


def _choices(hint: Any) -> tuple[str, ...]:
    hint = _given(hint)
    return BOOLEANS if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()


def completed(kind: type[Struct]) -> Iterator[str]:
    """The words that set a field: KEY=, or one for each name that it takes."""
    for field in fields(kind):
        yield from (f"{field.name}={choice}" for choice in _choices(field.type) or ("",))


def described(kind: type[Struct]) -> Iterator[tuple[str, str]]:
    """Each field as KEY=DEFAULT, and its meaning with the names or the range of its values."""
    meaning = meanings(kind)
    for field in fields(kind):
        values = ", ".join(_choices(field.type)) or _range(field.type)
        default = _text(field.default)
        yield (f"{field.name}={default}", meaning[field.name] + (f" ({values})" if values else ""))


def _text(default: object) -> str:
    if isinstance(default, bool):
        return BOOLEANS[not default]
    if isinstance(default, float):
        return f"{default:g}"
    return "" if default in (None, ()) else str(default)


def _range(hint: Any) -> str:
    """The range of a number in words; "" where any will do."""
    for bounds in getattr(_given(hint), "__metadata__", ()):
        ends = {"above": "gt", "at least": "ge", "below": "lt", "at most": "le"}
        limits = {word: getattr(bounds, name, None) for word, name in ends.items()}
        return " and ".join(f"{word} {at}" for word, at in limits.items() if at is not None)
    return ""


def purpose(kind: type[Struct]) -> str:
    """What the struct says of itself: its first paragraph."""
    return " ".join(cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def meanings(kind: type[Struct]) -> dict[str, str]:
    """What the struct says of each field, by its name; a base class too."""
    bases = kind.__mro__[kind.__mro__.index(Struct) - 1 :: -1]
    texts = (cleandoc(base.__doc__ or "") for base in bases)
    return {key: " ".join(text.split()) for key, text in MEANING.findall("\n".join(texts))}
