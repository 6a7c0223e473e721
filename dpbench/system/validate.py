"""Checks of settings: each raises a UserError of one sentence that names the setting.

Booleans are not numbers here, and neither are NaN and infinity.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import Parameter, getattr_static
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct

from dpbench.system.errors import UserError, nearest, spaced

SMALLEST, LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""The range of normal float32 numbers: in a computation, less would be 0 and more infinite."""

MAX_INTEGER = 2**63 - 1
"""The largest integer that a tensor can hold."""

MAX_NAME, MAX_PATH, MAX_PARTS = 255, 3_000, 200
"""The most bytes of a file name, and the most characters of a path that has room for files; the
most folders in it, as Python makes one within the other."""

MISSING = object()

PLAIN_NAME = re.compile(r"\w[\w.-]*")
"""A name that is the same in quotes and without."""

MAX_QUOTED = 60
"""The most characters of a value that a message quotes."""

Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
ImageSide = Annotated[int, Meta(ge=1, le=1_024)]  # in pixels
"""Ranges of settings, which are checked where a constructor's settings are read (`typed`), in the
parts of a run (`check_fields`), and in calls of the functions of methods (`checked`)."""


def quoted(value: object) -> str:
    """The value as a message quotes it, truncated where it is long."""
    try:
        return _truncated(repr(value))
    except ValueError:  # Python does not convert larger integers
        return "an integer of more than 4,300 digits"


def shown(text: str) -> str:
    """A name as a message shows it: without control characters, with spaces at its ends to be seen,
    and truncated where it is long."""
    return _truncated(spaced(text) if text.isprintable() else repr(text))


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number that float32 can hold."""
    if is_integer(value):
        return -MAX_INTEGER <= value <= MAX_INTEGER
    return isinstance(value, float) and -LARGEST <= value <= LARGEST


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(what: str, value: object, least: float = -math.inf, most: float = math.inf) -> float:
    """The value itself, if it is a finite number from `least` to `most`; otherwise a UserError."""
    if is_number(value) and least <= value <= most:
        return value
    range_ = f" from {least:g} to {most:g}"
    if math.isinf(most):
        range_ = f" of at least {least:g}" if math.isfinite(least) else ""
    elif math.isinf(least):
        range_ = f" of at most {most:g}"
    raise _refusal(what, f"a number{range_}" + _size_hint(value), value)


def positive(what: str, value: object) -> float:
    """The value itself, if it is a positive number; otherwise a UserError."""
    if is_number(value) and value >= SMALLEST:
        return value
    raise _refusal(what, "a positive number" + _size_hint(value), value)


def integer(what: str, value: object, least: int = 1, most: int = MAX_INTEGER) -> int:
    """The value itself, if it is an integer from `least` to `most`; otherwise a UserError."""
    if is_integer(value) and least <= value <= most:
        return value
    bounded = most < MAX_INTEGER or (is_integer(value) and value > most)
    range_ = f"from {least} to {most}" if bounded else f"of at least {least}"
    raise _refusal(what, f"a whole number {range_}", value)


def fraction(what: str, value: object, *, zero: bool = False, one: bool = False) -> float:
    """The value itself, if it lies between 0 and 1, or is an end that is allowed; else a
    UserError."""
    if is_number(value) and (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        return value
    above, from_0 = ("between 0 and 1", "above 0 and up to 1"), ("from 0 to below 1", "from 0 to 1")
    raise _refusal(what, f"a number {(from_0 if zero else above)[one]}", value)


def spelled_integer(text: str) -> int | str:
    """The integer written in a text, or else the text itself, for `integer` to refuse."""
    return int(text) if text.isdecimal() and len(text) <= MAX_QUOTED else text


def spelled_number(text: str) -> float | str:
    """The number written in a text, or else the text itself, for `number` to refuse."""
    try:
        return float(text)
    except ValueError:
        return text


def boolean(what: str, value: object) -> bool:
    """The value itself, if it is true or false; otherwise a UserError."""
    if isinstance(value, bool):
        return value
    raise _refusal(what, "true or false", value)


def path_of(what: str, value: object, kind: str = "folder") -> Path:
    """The path that a setting names; otherwise a UserError. kind: "folder" or "file"."""
    expected = f"the name of a {kind}"
    if isinstance(value, str) and value and "\0" not in value:
        try:
            parts = Path(value).parts
            longest = max((len(part.encode()) for part in parts), default=0)
        except UnicodeEncodeError:
            raise _refusal(what, f"{expected} in UTF-8", value) from None
        if longest <= MAX_NAME and len(value) <= MAX_PATH and len(parts) <= MAX_PARTS:
            return Path(value)
        if len(parts) > MAX_PARTS:
            raise _refusal(what, f"{expected}, at most {MAX_PARTS} folders deep", value)
        expected += f", with at most {MAX_NAME} bytes in each part"
    raise _refusal(what, expected, value, quoting_hint(what, value))


def one_of(what: str, value: object, known: Collection[str]) -> str:
    """The value itself, if it is a known name; otherwise a UserError with the nearest ones."""
    if isinstance(value, str) and value in known:
        return value
    raise UserError(f"{what}={shown(str(value))} is unknown: {nearest(str(value), known)}")


def known_keys(
    what: str, mapping: Mapping[str, Any], known: Collection[str], required: Iterable[str] = ()
) -> None:
    """UserError for keys of a mapping that are unknown, and for required ones that are missing."""
    for key in mapping:
        if key not in known:
            raise UserError(f"there is no {key!r} in {what}: {nearest(key, known)}")
    for key in required:
        if key not in mapping:
            raise UserError(f"{key!r} is missing in {what}.")


def typed(what: str, value: object, hint: Any) -> None:
    """UserError unless a value of a configuration has the annotated type, and is in its range.

    A list may stand for a tuple, and any object with a protocol's members for that protocol.
    """
    if not fits(value, hint):
        way = quoting_hint(what, value) if fits(as_text(value), hint) else ""
        raise _refusal(what, in_words(hint) + _size_hint(value), value, way)
    check_range(what, value, hint)


def check_range(what: str, value: Any, hint: Any) -> None:
    """UserError for a value of the annotated type that is out of its range."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        _check_bounds(what, value, options[0], options[1])
    elif origin in (Union, UnionType) and value is not None:
        check_range(what, value, next(option for option in options if fits(value, option)))
    elif origin in (list, Sequence):
        for part in value:
            check_range(f"each of {what}", part, options[0])


def check_fields(what: str, part: object) -> None:
    """UserError for a field of a dataclass, or of one in a field, out of its annotated range."""
    if not is_dataclass(part) or isinstance(part, type):
        return
    try:
        hints = get_type_hints(type(part), include_extras=True)
    except NameError:  # of a name that only type checkers import
        return
    for field in fields(part):
        value, hint = getattr(part, field.name), hints[field.name]
        check_fields(f"{what}.{field.name}", value)
        check_annotated(f"{what}.{field.name}", value, hint)


def check_annotated(what: str, value: object, hint: Any) -> None:
    """UserError for a value out of its annotated range; other types are not looked at."""
    if any(get_origin(kind) is Annotated for kind in (hint, *get_args(hint))):
        typed(what, value, hint)


def _check_bounds(what: str, value: Any, kind: type, bounds: Any) -> None:
    if kind is int:
        integer(what, value, bounds.ge, MAX_INTEGER if bounds.le is None else bounds.le)
    elif 1 in (bounds.lt, bounds.le):
        fraction(what, value, zero=bounds.ge == 0, one=bounds.le == 1)
    elif bounds.gt == 0:
        positive(what, value)
    else:
        number(what, value, bounds.ge)


def quoting_hint(what: str, value: object) -> str:
    """How a setting is written whose value is text that looks like a number, as the end of a
    sentence; "" for a value that looks like none."""
    text = as_text(value)
    return "" if value is None or text == value else quotes_hint(what, text)


def naming(what: str, names: str | Sequence[str]) -> str:
    """The setting of a column, or of a list of some, as it is typed in a shell."""
    listed = [names] if isinstance(names, str) else names
    if all(map(PLAIN_NAME.fullmatch, listed)):
        return f"{what}={names if isinstance(names, str) else '[' + ','.join(names) + ']'}"
    return shlex.quote(f"{what}={json.dumps(names, ensure_ascii=False)}")


def for_column(what: str, name: str, value: object) -> str:
    """The setting of a value by column, for one column, as it is typed in a shell."""
    key = name if PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    return shlex.quote(f"{what}={{{key}: {value}}}")


def quotes_hint(what: str, text: object) -> str:
    """How a setting is written whose value is this text, as the end of a sentence."""
    written = json.dumps(text, ensure_ascii=False)
    if len(written) > MAX_QUOTED:
        return ""
    return f": text that looks like a number, true or null is quoted, as in '{what}={written}'"


def as_text(value: object) -> object:
    """The value with its numbers and booleans as the texts that look like them."""
    if isinstance(value, list):
        return [as_text(part) for part in value]
    is_scalar = value is None or isinstance(value, bool | int | float)
    return json.dumps(value) if is_scalar and fits(value, bool | float | None) else value


def fits(value: object, hint: Any) -> bool:
    """Whether a value has the annotated type, by the rules of `typed`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, options[0])
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in options)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in options)
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and _all_fit(value, options)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(fits(v, options[1]) for v in value.values())
    if origin is Callable or hint is Callable:
        return callable(value)
    if Protocol in getattr(hint, "__bases__", ()):
        members = (name for name in dir(hint) if not name.startswith("_"))
        return all(getattr_static(value, name, MISSING) is not MISSING for name in members)
    return SCALARS[hint](value) if hint in SCALARS else isinstance(value, hint)


def _all_fit(values: Sequence, hints: tuple) -> bool:
    """Whether all values have the one type, or each the type at its position."""
    if len(hints) == 1 or hints[1:] == (...,):
        return all(fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(fits, values, hints))


SCALARS: dict[Any, Callable[[object], bool]] = {
    Any: lambda value: True,
    Parameter.empty: lambda value: True,
    None: lambda value: value is None,
    int: lambda value: is_integer(value) and -MAX_INTEGER <= value <= MAX_INTEGER,
    float: is_number,
}
"""Types for which `isinstance` is not enough: true is not a number."""

WORDS = {
    NoneType: ("null", "null"),
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    dict: ("a mapping", "mappings"),
    list: ("a list", "lists"),
    tuple: ("a list", "lists"),
    Sequence: ("a list", "lists"),
}


def in_words(hint: Any, plural: bool = False) -> str:
    """The name of a type in messages."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return in_words(options[0], plural)
    if origin in (Union, UnionType):
        hidden = {int} if {int, float} <= {*options} else set()  # a number may be whole
        named = [o for o in options if not _is_unnamed(o) and o not in hidden]
        return " or ".join(dict.fromkeys(in_words(option, plural) for option in named))
    if origin is Literal:
        return " or ".join(str(option) or '""' for option in options)
    if origin in (list, tuple, Sequence):
        return f"{WORDS[origin][plural]} of {in_words(options[0], plural=True)}"
    if origin in (dict, Mapping) and options[1] is not Any:
        return f"{WORDS[dict][plural]} of {in_words(options[1], plural=True)}"
    if isinstance(hint, type) and issubclass(hint, Struct):
        return WORDS[dict][plural]
    if (kind := origin or hint) in WORDS:
        return WORDS[kind][plural]
    return "an object of another type (see its _target_)"


def _is_unnamed(hint: Any) -> bool:
    """Whether no user writes a value of the type: an UnsetType is a setting that is left out."""
    return getattr(hint, "__module__", "").startswith(("torch", "msgspec"))


def _refusal(what: str, expected: str, value: object, way: str = "") -> UserError:
    return UserError(f"{what} must be {expected}, got {quoted(value)}{way}.")


def _size_hint(value: object) -> str:
    """The limit to add to a message about a number that is too large or too small."""
    if is_integer(value):
        return " of at most 63 bits" if abs(value) > MAX_INTEGER else ""
    if not isinstance(value, float) or not math.isfinite(value):
        return ""
    representable = value == 0 or SMALLEST <= abs(value) <= LARGEST
    return "" if representable else " that float32 can hold"


def _truncated(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 3]}..."
