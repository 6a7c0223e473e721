"""Mappings from YAML as values of a type; a fault is refused in one sentence that names the key."""

from types import UnionType
from typing import Any, TypeGuard, TypeVar, Union, get_args, get_origin

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields

from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of, typed

S = TypeVar("S", bound=Struct)


def parsed(what: str, plain: object, kind: type[S]) -> S:
    """A mapping as a struct; UserError for unknown, missing and mistyped keys.

    what: its name in messages, which the names of keys follow after a dot.
    """
    try:
        return convert(plain, kind)
    except ValidationError as error:
        _check(what, plain, kind)  # in our words, which takes ten times as long
        raise UserError(f"{what} cannot be read: {error}.") from error


def _check(what: str, value: Any, hint: Any) -> None:
    """`typed`, for types that may have structs in them."""
    options = get_args(hint)
    if is_struct(hint):
        typed(what, value, dict[str, Any])
        _check_keys(what, value, hint)
    elif _has_structs(hint):
        typed(what, value, list[Any] if len(options) == 1 else dict[str, Any])
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            name = f"{what}.{key}" if isinstance(value, dict) else f"{what}[{key}]"
            _check(name, part, options[-1])
    elif value is not None and (parts := [o for o in options if _has_structs(o)]):
        _check(what, value, parts[0])
    elif get_origin(hint) in (Union, UnionType) and any(map(is_struct, options)):
        if value is not None:
            _check(what, value, _kind(what, value, [o for o in options if is_struct(o)]))
    else:
        typed(what, value, hint)


def _has_structs(hint: Any) -> bool:
    """Whether a type is that of a list or mapping of structs."""
    return get_origin(hint) in (list, dict) and is_struct(get_args(hint)[-1])


def _check_keys(what: str, value: dict[str, Any], kind: type[Struct]) -> None:
    keys = {field.encode_name: field for field in fields(kind)}
    tag = kind.__struct_config__.tag_field
    known = {*keys, *([tag] if tag else [])}
    known_keys(
        what if "." in what else f"the {what}",
        value,
        known,
        [key for key, field in keys.items() if field.required],
    )
    for key, part in value.items():
        if key in keys:
            _check(f"{what}.{key}", part, keys[key].type)


def _kind(what: str, value: Any, kinds: list[type[Struct]]) -> type[Struct]:
    """The one of several structs that a mapping is of, by their tag."""
    if len(kinds) == 1:
        return kinds[0]
    tag = kinds[0].__struct_config__.tag_field
    typed(what, value, dict[str, Any])
    by_tag = {str(kind.__struct_config__.tag): kind for kind in kinds}
    return by_tag[one_of(f"{what}.{tag}", value.get(tag), by_tag)]


def is_struct(hint: Any) -> TypeGuard[type[Struct]]:
    """Whether a type is that of a mapping with known keys."""
    return isinstance(hint, type) and issubclass(hint, Struct)
