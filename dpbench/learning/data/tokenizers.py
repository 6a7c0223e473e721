"""Folders of tokenizers: what is public of them, read without the library that runs them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from dpbench.learning.data.fetch.archives import SUFFIX, SUFFIXES, unpacked
from dpbench.system.errors import MALFORMED_JSON, UserError
from dpbench.system.paths import installed_folder

WHOLE, WORDS = "tokenizer.json", "vocab.txt"
PAD_TOKENS = ("[PAD]", "<pad>", "<PAD>", "<|endoftext|>")
"""The usual names of the padding token; the last is that of GPT-2, which has no other."""


class Described(NamedTuple):
    """The number of tokens of a tokenizer, and the number of its padding token."""

    vocabulary: int
    padding: int


def tokenizer_folder(place: str) -> Path | None:
    """The folder of a tokenizer: one itself, or that in an archive or an installed package, none of
    whose code is run; None if there is none of that name."""
    path = Path(place).expanduser()
    if path.is_dir():
        return path
    if path.suffix in SUFFIXES and path.is_file():
        return unpacked(path)
    package = installed_folder(place)
    for file in sorted(package.rglob("*")) if package else ():
        if file.name == WHOLE:
            return file.parent
        if file.suffix == SUFFIX:
            return unpacked(file)
    return None


def described(folder: Path) -> Described:
    """What is public of the tokenizer in a folder; UserError for none, and for one that does not
    pad."""
    try:
        numbers = _numbers(folder)
        named = _named_padding(folder)
    except (OSError, *MALFORMED_JSON) as error:
        raise UserError(
            f"{folder} has no {WHOLE} and no {WORDS} of a tokenizer: give a folder that "
            "save_pretrained of transformers has written."
        ) from error
    for token in (named, *PAD_TOKENS):
        if token in numbers:
            return Described(len(numbers), numbers[token])
    raise UserError(
        f"the tokenizer in {folder} has no padding token: give one that has, such as BERT's."
    )


def _numbers(folder: Path) -> dict[Any, int]:
    if not (whole := folder / WHOLE).is_file():
        words = (folder / WORDS).read_text(encoding="utf-8").splitlines()
        return {word: number for number, word in enumerate(words)}
    content = json.loads(whole.read_text(encoding="utf-8"))
    tokens = content["model"]["vocab"]
    if isinstance(tokens, list):  # of a Unigram model: pairs of a token and its score
        tokens = {token: number for number, (token, _) in enumerate(tokens)}
    return tokens | {token["content"]: token["id"] for token in content.get("added_tokens", ())}


def _named_padding(folder: Path) -> str | None:
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (file := folder / name).is_file():
            token = json.loads(file.read_text(encoding="utf-8")).get("pad_token")
            if token is not None:
                return token["content"] if isinstance(token, dict) else token
    return None
