"""Tokenisation of sentences and pairs of sentences."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.examples import tokens_of
from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.tokenizers import WHOLE, Described, described, tokenizer_folder
from dpbench.system.errors import Unavailable, UserError, first_line, warn
from dpbench.system.validate import Count, Whole, integer, quoted

MAX_TOKENS = 100_000  # per pair: beyond any model
Length = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
CHUNK = 10_000  # pairs tokenised at a time: the tokenizer's lists take far more memory than arrays


@dataclass(frozen=True)
class Tokens:
    """A published tokenizer: its name on the Hugging Face hub, or its folder, an archive with it,
    or an installed package.

    vocabulary: its number of tokens, which models need before anything is read. length: T, to which
    longer pairs are truncated, the longer sentence first, and shorter ones padded. padding: the
    number of its padding token. lengths: in passes of a model, texts are cut to the least of these
    that they fit in; None for T alone.
    """

    tokenizer: str
    vocabulary: Count
    length: Length
    padding: Whole = 0
    lengths: list[int] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        check_lengths("dataset.tokens.lengths", self.lengths)

    def of(self, *texts: Sequence[str]) -> Tensor:
        """Token numbers and the number of each token's text, int32 [n, 2, T]; BERT's are [CLS]
        premise [SEP] hypothesis [SEP], padding.

        texts: n sentences; or n premises, and n hypotheses. Raises UserError if the tokenizer is
        not available or does not match the settings; warns of texts that are cut.
        """
        return _cut(*self._coded(*texts))

    def kept(self, folder: Path, *texts: Sequence[str]) -> Tensor:
        """Those of `of`, in a file below the data folder whose name is a checksum of texts and
        tokenizer."""
        digest = hashlib.sha256(self._content.encode())
        digest.update(repr((self.length, self.padding)).encode())
        for text in (text for column in texts for text in column):
            digest.update(f"{text}\0".encode(errors="surrogatepass"))
        stem = folder / "tokens" / digest.hexdigest()[:32]
        files = [stem.with_suffix(".npy"), stem.with_suffix(".counts.npy")]
        ensure_cached(files, lambda parts: _save(self._coded(*texts), parts))
        return _cut(*(np.load(file, mmap_mode="c") for file in files))

    def preparation(self, pairs: bool, classes: Sequence[Any]) -> "TextPreparation":
        """How new texts become a model's inputs. classes: in the order of its outputs."""
        return TextPreparation(self._content, self.length, self.padding, pairs, [*classes])

    def _coded(self, *texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return coded(self._tokenizer, self.length, self.padding, *texts)

    @cached_property
    def _content(self) -> str:
        """The tokenizer as text, for checksums."""
        return self._tokenizer.to_str()

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer of the library tokenizers, which neither pads nor cuts texts."""
        folder = tokenizer_folder(self.tokenizer)
        if folder is not None and (folder / WHOLE).is_file():
            found = described(folder)
            tokenizer = _read(folder / WHOLE)
        else:
            tokenizer, found = self._from_hub(str(folder or self.tokenizer))
        if found != (self.vocabulary, self.padding):
            raise UserError(
                f"the tokenizer {self.tokenizer} has {found.vocabulary} tokens and padding "
                f"{found.padding}, not {self.vocabulary} and {self.padding}: set "
                f"dataset.tokens.vocabulary={found.vocabulary} and "
                f"+dataset.tokens.padding={found.padding}."
            )
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _from_hub(self, name: str) -> tuple[Any, Described]:
        try:
            tokenizer = library("transformers").AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"the tokenizer {name} is not in this machine's Hugging Face cache and "
                "cannot be downloaded now: run once with network access, or copy the cache "
                "($HF_HOME) from a machine that has it."
            ) from error
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(f"the tokenizer {name} has no fast version, and cannot be used.")
        return tokenizer.backend_tokenizer, Described(len(tokenizer), tokenizer.pad_token_id)


@dataclass(frozen=True)
class PublishedTexts:
    """What a published data set of texts, or of pairs of texts, has from its tokenizer; the groups
    are its classes, by name."""

    tokens: Tokens

    task: ClassVar = "classification"
    pairs: ClassVar[bool]
    groups: ClassVar[tuple[str, ...]]

    vocabulary = property(attrgetter("tokens.vocabulary"))
    padding = property(attrgetter("tokens.padding"))
    lengths = property(attrgetter("tokens.lengths"))

    @property
    def classes(self) -> int:
        return len(self.groups)

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, self.tokens.length)

    def text_preparation(self) -> "TextPreparation":
        """How texts become a model's inputs."""
        return self.tokens.preparation(self.pairs, self.groups)


class TextPreparation(msgspec.Struct, frozen=True):
    """How texts become the inputs of a model, kept with it to classify new ones.

    tokenizer: the content of its file tokenizer.json. length, padding: as those of Tokens. pairs:
    whether an example is two texts. classes: in the order of the model's outputs; none for a
    language model.
    """

    tokenizer: str
    length: Length
    padding: Whole
    pairs: bool
    classes: list[str | int | float | bool | None]

    def __call__(self, texts: Sequence[Any]) -> Tensor:
        """The inputs int64 [n, 2, T] of n texts, or n pairs of texts; UserError for others."""
        kind = tuple if self.pairs else str
        if not texts or not all(isinstance(text, kind) for text in texts):
            wanted = "pairs of texts, [(one, other), ...]" if self.pairs else "texts"
            does = "classifies" if self.classes else "predicts"
            raise UserError(f"this model {does} {wanted}: give a list of them.")
        columns = [*zip(*texts, strict=True)] if self.pairs else [texts]
        inputs = _cut(*coded(self._loaded, self.length, self.padding, *columns)).long()
        return inputs if self.classes else with_predicted(inputs, self.padding, self.pairs)

    @property
    def _loaded(self) -> Any:
        tokenizer = library("tokenizers").Tokenizer.from_str(self.tokenizer)
        tokenizer.no_padding()
        return tokenizer


def _read(file: Path) -> Any:
    """The tokenizer of the library tokenizers in a file; UserError for another one."""
    kind = library("tokenizers").Tokenizer
    try:
        return kind.from_file(str(file))
    except Exception as error:  # it raises nothing else
        raise UserError(
            f"{file} is no tokenizer that the library tokenizers can read "
            f"({first_line(error).rstrip('.')}): give a folder that save_pretrained of "
            "transformers has written."
        ) from error


def coded(
    tokenizer: Any, length: int, padding: int, *texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens int32 [n, 2, T], and the numbers of tokens before they are cut [n].

    tokenizer: one of the library tokenizers, which does not pad.
    """
    tokens = np.zeros((len(texts[0]), 2, length), np.int32)
    tokens[:, 0] = padding
    counts = np.zeros(len(tokens), np.int32)
    for start, part in _parts(*texts):
        tokenizer.no_truncation()
        found = tokenizer.encode_batch(part)
        counts[start : start + len(part)] = [len(one.ids) for one in found]
        tokenizer.enable_truncation(length, strategy="longest_first")
        for row, one in enumerate(found):
            if len(one.ids) > length:
                one = tokenizer.encode_batch(part[row : row + 1])[0]
            tokens[start + row, 0, : len(one.ids)] = one.ids
            if isinstance(part[row], tuple):
                tokens[start + row, 1, : len(one.ids)] = _text_numbers(one.sequence_ids)
    return tokens, counts


def with_predicted(inputs: Tensor, padding: int, pairs: bool) -> Tensor:
    """Tokens [n, 2, T], and 1 beside those that a language model predicts, else 0: all but the
    first and the padding, or those of the second of two texts."""
    tokens, texts = inputs.unbind(1)
    places = torch.arange(tokens.shape[1])
    predicted = (places > 0) & (places < tokens_of(tokens, padding).unsqueeze(1))
    if pairs:
        predicted &= texts == 1
    return torch.stack([tokens, predicted.to(tokens)], 1)


def check_lengths(key: str, lengths: Sequence[int] | None) -> None:
    """UserError for lengths that do not ascend."""
    for before, length in pairwise([0, *(lengths or ())]):
        if integer(key, length) <= before:
            raise UserError(f"{key}={quoted(lengths)} must ascend: write [32,64,128].")


def _parts(*texts: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    """The texts, CHUNK at a time, after the place of the first: strings, or pairs of them."""
    for start in range(0, len(texts[0]), CHUNK):
        columns = [column[start : start + CHUNK] for column in texts]
        yield start, list(columns[0] if len(columns) == 1 else zip(*columns, strict=True))


def _text_numbers(sequences: list[int | None]) -> np.ndarray:
    """The number of each token's text: that of the text before for special tokens, as BERT has it
    and other tokenizers do not."""
    return np.maximum.accumulate([number or 0 for number in sequences])


def _save(arrays: Sequence[np.ndarray], files: Sequence[Path]) -> None:
    for array, path in zip(arrays, files, strict=True):
        with path.open("wb") as file:
            np.save(file, array)


def _cut(tokens: np.ndarray, counts: np.ndarray) -> Tensor:
    """Tokens [n, 2, T]; warns of texts that had more than T. counts: of their tokens [n]."""
    length = tokens.shape[2]
    if long := int((counts > length).sum()):
        warn(
            f"{long:,} of {len(counts):,} texts have more than {length} tokens, and are cut: a "
            f"greater length keeps more (the longest has {counts.max():,})."
        )
    return torch.from_numpy(tokens)
