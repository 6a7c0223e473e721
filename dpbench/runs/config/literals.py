"""Values as texts in Hydra's grammar, and what that grammar lacks: odd keys, letters beyond ASCII.

Hydra reads neither a key in quotes nor an unquoted word with an accent. Words are put in quotes
before it parses, and keys are replaced by plain ones, and put back afterwards.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Quote, QuotedString

PLAIN = re.compile(r"[A-Za-z_][\w./:-]*", re.ASCII)
KEY = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
WORDS = ("null", "true", "false", "inf", "nan")

TOKEN = re.compile(
    r"""("(?:(?:\\\\)*|.*?[^\\](?:\\\\)*)"|'(?:(?:\\\\)*|.*?[^\\](?:\\\\)*)')"""
    r"""|\$\{[^}]+\}|[\[\]{}(),:]"""
    r"""|(?:\\[\\()\[\]{}:=, \t]|(?!\$\{)[^\[\]{}(),:'"\\])+|.""",
    re.DOTALL,
)
"""A text in quotes or an interpolation, as in Hydra's lexer; a separator; or other characters."""

BARE = re.compile(r"""[^'"$\\=]*[^\x00-\x7f'"$\\=][^'"$\\=]*""")
"""A word with letters that Hydra reads only in quotes."""


def literal(value: object) -> str | None:
    """A value in the grammar of overrides; None for one that is not plain."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        parts = [literal(part) for part in value]
        return None if None in parts else f"[{','.join(map(str, parts))}]"
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        keys = (key if is_plain_key(key) else in_quotes(key) for key in value)
        pairs = dict(zip(keys, map(literal, value.values()), strict=True))
        text = ",".join(f"{key}:{part}" for key, part in pairs.items())
        return None if None in pairs.values() else f"{{{text}}}"
    return None


def in_quotes(text: str, quote: Quote = Quote.single) -> str:
    """A text in quotes, which Hydra reads back."""
    return QuotedString(text, quote).with_quotes()


def is_plain_key(key: object) -> bool:
    """Whether Hydra reads a key of a mapping, without quotes, as this text."""
    return isinstance(key, str) and bool(KEY.fullmatch(key)) and key.lower() not in WORDS


def has_odd_keys(value: object) -> bool:
    """Whether a value contains a mapping with a key that Hydra does not read."""
    if isinstance(value, Mapping):
        return not all(map(is_plain_key, value)) or any(map(has_odd_keys, value.values()))
    return isinstance(value, list) and any(map(has_odd_keys, value))


def texts_in(value: object) -> Iterator[str]:
    """All texts in a plain value but the keys of its mappings."""
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from texts_in(part)


def prepared(text: str, unquoted: Callable[[str], str]) -> tuple[str, dict[str, str]]:
    """The text of a value as Hydra can parse it, and the keys in it by what stands for them.
    unquoted: the text that a text in quotes means."""
    keys: dict[str, str] = {}
    done, element, opened, in_key = "", "", [""], False
    for token in (match[0] for match in TOKEN.finditer(text)):
        if token not in "[]{}()," and not (token == ":" and in_key):
            element += token
            continue
        done += (_prepared_key(element, keys, unquoted) if in_key else _prepared(element)) + token
        element = ""
        if token in "[{(":
            opened.append(token)
        elif token in "]})":
            opened = opened[:-1] or [""]
        in_key = opened[-1] == "{" and token in "{,"
    return done + _prepared(element), keys


def restored(value: Any, keys: Mapping[str, str]) -> Any:
    """A parsed value with its own keys."""
    if isinstance(value, ChoiceSweep):
        value.list = restored(value.list, keys)
        return value
    if isinstance(value, dict):
        return {keys.get(key, key): restored(part, keys) for key, part in value.items()}
    return [restored(part, keys) for part in value] if isinstance(value, list) else value


def _text(value: str) -> str:
    if PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    # To OmegaConf, ${ begins an interpolation unless an odd number of backslashes precedes it.
    return in_quotes(re.sub(r"(\\*)\$\{", r"\1\1\\${", value))


def _prepared(element: str) -> str:
    word = element.strip(" \t")
    return element.replace(word, f"'{word}'") if BARE.fullmatch(word) else element


def _prepared_key(element: str, keys: dict[str, str], unquoted: Callable[[str], str]) -> str:
    word = element.strip(" \t")
    quoted = word[:1] in ("'", '"')
    if not word or is_plain_key(word) or (not quoted and "\\" in word):
        return element
    surrogate = f"__key_{len(keys)}__"
    keys[surrogate] = unquoted(word) if quoted else word
    return surrogate
