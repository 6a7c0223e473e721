"""Features of texts from a frozen encoder that somebody else has trained on public texts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor

from dpbench.learning.data.dataset import Dataset, has_pairs, padding_of, vocabulary_of
from dpbench.learning.data.derive.pretrained import (
    AT_ONCE,
    LARGEST,
    FrozenNetwork,
    one_by_one,
)
from dpbench.learning.data.examples import Lengths
from dpbench.learning.data.fetch.encoders import encoder_config
from dpbench.learning.data.fetch.published_weights import with_encoder_weights
from dpbench.system.errors import UserError

LENGTHS = (16, 32, 64, 128)
"""The lengths to which sentences are cut, each by its own."""


@dataclass(frozen=True, kw_only=True)
class TextFeatures(FrozenNetwork):
    """The mean of an encoder's last hidden states over the tokens of a text, in float16.

    Of a pair, each text is read by itself, and the features of their means u and v are u, v,
    |u - v| and u v (Conneau et al. 2017, "Supervised learning of universal sentence
    representations from natural language inference data"). config: as that of
    `dpbench.models.text.Text`.

    Every text is read by itself, and nothing is measured on the data.
    """

    config: dict[str, Any] | None = field(hash=False)

    @cached_property
    def _sizes(self) -> Any:
        return encoder_config(self.config, None, "features")

    @property
    def note(self) -> str:
        return (
            f"The features are those of a text encoder from {self._published.place} "
            f"({self.checksum}), which is taken to be public: not covered by epsilon. Each "
            "example's features depend on that example alone."
        )

    def shape_of(self, dataset: Dataset) -> tuple[int, ...]:
        """The shape of a text's features; UserError for data that are no texts of the encoder."""
        sizes, tokens = self._sizes, vocabulary_of(dataset)
        if tokens is None or tokens > sizes.vocab_size:
            raise UserError(
                f"features=text needs texts of at most {sizes.vocab_size} tokens, and "
                f"{dataset.name} has {'none' if tokens is None else tokens}: use features=none."
            )
        if padding_of(dataset) != (sizes.pad_token_id or 0):
            raise UserError(
                f"{dataset.name} has texts padded by token {padding_of(dataset)} and the encoder "
                f"expects {sizes.pad_token_id}: use the tokenizer that it was published with."
            )
        # Positions of texts whose padding is not 0 begin after its number, as RoBERTa's do.
        first = sizes.pad_token_id + 1 if sizes.pad_token_id else 0
        most = sizes.max_position_embeddings - first
        if dataset.shape[1] > most:
            raise UserError(
                f"the encoder reads {most} tokens, and the texts of {dataset.name} may have "
                f"{dataset.shape[1]}: set dataset.length={most}, or dataset.tokens.length."
            )
        return (sizes.hidden_size * (4 if has_pairs(dataset) else 1),)

    def file_name(self, inputs: str) -> str:
        """The name of a file of features: 30 MB for 10,000 pairs and a width of 384."""
        return f"text_{self._short_checksum}_{inputs}"

    def extractor(self, dataset: Dataset, device: torch.device) -> Callable[[Tensor], Tensor]:
        means = self._means(dataset, device)
        if not has_pairs(dataset):
            return lambda texts: _stored(means(texts))

        def features(pairs: Tensor) -> Tensor:
            u, v = means(_first(pairs, padding)), means(_second(pairs, padding))
            return _stored(torch.cat([u, v, (u - v).abs(), u * v], 1))

        padding = padding_of(dataset)
        return features

    def _means(self, dataset: Dataset, device: torch.device) -> Callable[[Tensor], Tensor]:
        """A function from texts [B, 2, T] to their means [B, D], each by itself."""
        network = self._with_weights(partial(with_encoder_weights, self._sizes))
        encoder, padding = network.to(device), padding_of(dataset)
        lengths = Lengths(LENGTHS, padding)
        draw = torch.Generator().manual_seed(0)

        @torch.inference_mode()
        def mean(tokens: Tensor) -> Tensor:
            seen = (tokens != padding).long().to(device)
            hidden = encoder(tokens.to(device), attention_mask=seen).last_hidden_state
            weights = seen.unsqueeze(2) / seen.sum(1).clamp(min=1).view(-1, 1, 1)
            return (hidden * weights).sum(1).cpu()

        @cache
        def of_length(length: int) -> Callable[[Tensor], Tensor]:
            shape, most = (AT_ONCE, length), vocabulary_of(dataset) or 0
            return one_by_one(mean, torch.randint(most, shape, generator=draw))

        def means(texts: Tensor) -> Tensor:
            out = torch.empty(len(texts), self._sizes.hidden_size)
            for places, length in lengths.groups(texts):
                if len(places):
                    out[places] = of_length(length)(texts[places, 0, :length])
            return out

        return means


def _stored(features: Tensor) -> Tensor:
    return features.clamp(-LARGEST, LARGEST).half()


def _first(pairs: Tensor, padding: int) -> Tensor:
    """The first texts of pairs [B, 2, T] as texts."""
    tokens, numbers = pairs.unbind(1)
    return torch.stack([tokens.masked_fill(numbers == 1, padding), torch.zeros_like(tokens)], 1)


def _second(pairs: Tensor, padding: int) -> Tensor:
    """The second texts of pairs [B, 2, T] as texts, with the token that begins a text."""
    tokens, numbers = pairs.unbind(1)
    kept = (numbers == 1).int()
    kept[:, 0] = 1
    order = kept.argsort(dim=1, descending=True, stable=True)
    moved = tokens.masked_fill(kept == 0, padding).gather(1, order)
    return torch.stack([moved, torch.zeros_like(moved)], 1)
