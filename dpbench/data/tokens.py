"""Tokenisation of pairs of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.data.fetch.library import library
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

    def of(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:
        """Token numbers and types, int32 [n, 2, T]: [CLS] premise [SEP] hypothesis [SEP], padding.

        Raises UserError if the tokenizer is not available or does not match the settings.
        """
        tokenizer = self._load()
        starts = range(0, len(premises), CHUNK)
        parts = [slice(start, start + CHUNK) for start in starts]
        return torch.cat([self._encode(tokenizer, premises[at], hypotheses[at]) for at in parts])

    def _encode(self, tokenizer: Any, premises: Sequence[str], hypotheses: Sequence[str]) -> Tensor:
        coded = tokenizer(
            list(premises),
            list(hypotheses),
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
