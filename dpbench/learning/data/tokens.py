"""Tokenisation of sentences and pairs of sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import Unavailable, UserError
from dpbench.system.validate import Count, integer

PADDING = 0
"""The padding token of BERT."""

MAX_TOKENS = 100_000  # per pair: beyond any model
CHUNK = 10_000  # pairs tokenised at a time: the tokenizer's lists take far more memory than tensors


@dataclass(frozen=True)
class Tokens:
    """A published tokenizer, by its name on the Hugging Face hub or its folder.

    vocabulary: its number of tokens, which models need before anything is read. length: T, to which
    longer pairs are truncated, the longer sentence first, and shorter ones padded.
    """

    tokenizer: str
    vocabulary: Count
    length: int

    def __post_init__(self) -> None:
        integer("dataset.tokens.length", self.length, most=MAX_TOKENS)

    def of(self, *texts: Sequence[str]) -> Tensor:
        """Token numbers and types, int32 [n, 2, T]: [CLS] premise [SEP] hypothesis [SEP], padding.

        texts: n sentences; or n premises, and n hypotheses. Raises UserError if the tokenizer is
        not available or does not match the settings.
        """
        tokenizer = self._load()
        return torch.cat([self._encode(tokenizer, *part) for part in _parts(*texts)])

    def numbers_of(self, *texts: Sequence[str]) -> list[int]:
        """The number of tokens of each sentence or pair [n], before they are cut."""
        tokenizer = self._load()
        coded = (tokenizer(*part, verbose=False)["input_ids"] for part in _parts(*texts))
        return [len(row) for rows in coded for row in rows]

    def _encode(self, tokenizer: Any, *texts: list[str]) -> Tensor:
        coded = tokenizer(
            *texts,
            truncation="longest_first",
            padding="max_length",
            max_length=self.length,
            return_token_type_ids=True,
            return_tensors="pt",
        )
        return torch.stack([coded["input_ids"], coded["token_type_ids"]], dim=1).int()

    def _load(self) -> Any:
        try:
            tokenizer = library("transformers").AutoTokenizer.from_pretrained(self.tokenizer)
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"the tokenizer {self.tokenizer} is not in this machine's Hugging Face cache and "
                "cannot be downloaded now: run once with network access, or copy the cache "
                "($HF_HOME) from a machine that has it."
            ) from error
        if len(tokenizer) != self.vocabulary or tokenizer.pad_token_id != PADDING:
            raise UserError(
                f"the tokenizer {self.tokenizer} has {len(tokenizer)} tokens and padding "
                f"{tokenizer.pad_token_id}, not {self.vocabulary} and {PADDING}: set "
                "dataset.tokens.vocabulary to its size, or choose a tokenizer of BERT."
            )
        return tokenizer


def _parts(*texts: Sequence[str]) -> Iterator[list[list[str]]]:
    """The texts, CHUNK at a time."""
    for start in range(0, len(texts[0]), CHUNK):
        yield [list(column[start : start + CHUNK]) for column in texts]
