"""Encoders of texts with a classification head, from the transformers library."""

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.learning.data.fetch.encoders import CLASSIFIERS, encoder_config
from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.fetch.published_weights import (
    PublishedWeights,
    public_note,
    with_weights,
)
from dpbench.learning.models.lora import Lora
from dpbench.learning.models.modes import in_mode
from dpbench.learning.models.pretrained import attention, planning, published_weights_of
from dpbench.learning.models.sizes import Dropout
from dpbench.learning.models.trained_parts import FineTuned, adapt, check_train, train_part
from dpbench.system.errors import UserError
from dpbench.system.validate import Share, one_of


@dataclass(frozen=True, kw_only=True)
class Text:
    """An encoder of transformers (BERT, RoBERTa, DistilBERT, ELECTRA, MiniLM) and a new head.

    Inputs are int64 [B, 2, T]: token numbers, then the number of the text that each belongs to; T
    is at most `length`. config: what the config.json beside the weights says, which the sizes are
    read from; None for that of the weights. package, weights, hub, revision, checksum: see
    PublishedWeights; pretrained: false for random weights. dropout: in all layers; None for that
    of the config. train, lora, share: see `dpbench.models.trained_parts`; the last block is the
    last layer of the encoder and what follows it. pairs: how two texts are read, one of PAIRS.

    Raises UserError for a config of no encoder, and for weights that lack more than the head.
    """

    config: dict[str, Any] | None = field(hash=False)
    package: str | None
    weights: str | None = None
    hub: str | None
    revision: str | None
    checksum: str | None
    pretrained: bool
    dropout: Dropout | None
    train: str
    lora: Lora | None = None
    share: Share = 0.01
    pairs: str = "cross_encoder"

    def __post_init__(self) -> None:
        one_of("model.pairs", self.pairs, PAIRS)
        check_train(self.train, self.lora)
        published_weights_of(self).check_used(self.pretrained)

    @property
    def note(self) -> str:
        if not self.pretrained:
            return ""
        return public_note(f"{self.kind} from {published_weights_of(self).place}", self.checksum)

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return "a text encoder"

    @cached_property
    def _sizes(self) -> Any:
        return encoder_config(self.config, self.dropout)

    @property
    def vocabulary(self) -> int:
        return self._sizes.vocab_size

    @property
    def padding(self) -> int | None:
        """The number of the padding token; None if any will do."""
        return self._sizes.pad_token_id or 0

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        published = published_weights_of(self) if self.pretrained else None
        return text_classifier(self, self._sizes, published, shape, classes, PAIRS[self.pairs])


class TextClassifier(nn.Module):
    """Logits [B, K] from int64 [B, 2, T], token numbers and the number of each token's text.

    checksum: of the initial weights. Its attention mask is made here, as that of the library
    depends on token values, which torch.func's vmap does not allow.
    """

    networks = CLASSIFIERS  # of transformers, by config
    net: Any

    def __init__(self, net: Any, checksum: str | None = None):
        super().__init__()
        self.net, self.checksum = net, checksum
        self._padding = net.config.pad_token_id or 0
        self._takes = {*inspect.signature(net.forward).parameters}
        self._types = getattr(net.config, "type_vocab_size", 0) > 1
        positions = getattr(net.base_model.embeddings, "position_embeddings", None)
        padded = getattr(positions, "padding_idx", None)
        self._first = 0 if padded is None else padded + 1

    @staticmethod
    def new_parts(net: Any) -> dict[str, nn.Module]:
        """What of a network is no part of an encoder, and has new weights."""
        named = net.named_children()
        return {name: part for name, part in named if name != net.base_model_prefix}

    @property
    def head(self) -> nn.Module:
        return nn.ModuleList(self.new_parts(self.net).values())

    @property
    def length(self) -> int:
        """The most tokens of a text."""
        return self.net.config.max_position_embeddings - self._first

    def forward(self, inputs: Tensor) -> Tensor:
        tokens, types = inputs.unbind(1)
        # One row per example: a look-up shared by the batch would have no per-example gradient.
        positions = torch.arange(self._first, self._first + tokens.shape[1], device=tokens.device)
        positions, hidden = positions.expand_as(tokens), (tokens == self._padding)[:, None]
        return self._read(tokens, positions, types, hidden).logits

    def _read(self, tokens: Tensor, positions: Tensor, types: Tensor, hidden: Tensor) -> Any:
        """What the network gives out; hidden: the tokens that another one does not see, bool
        [B, T, T], or [B, 1, T] for all alike."""
        given = {
            "position_ids": positions,
            "token_type_ids": types if self._types else torch.zeros_like(tokens),
        }
        # The additive mask: 0, and the lowest finite number where a token is hidden.
        dtype = next(self.net.parameters()).dtype
        mask = torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
        with attention(tokens.device):
            return self.net(
                tokens,
                attention_mask=mask[:, None],
                **{key: value for key, value in given.items() if key in self._takes},
            )

    @torch.no_grad()
    def check_mask(self) -> None:
        """UserError for an encoder that takes another mask than an additive one."""
        with in_mode(self, training=False):
            same = torch.allclose(*self._with_and_without_padding(), rtol=1e-3, atol=1e-5)
        if not same:
            raise UserError(
                f"an encoder of the kind {self.net.config.model_type} masks padding in a way of "
                "its own: use one that is built like BERT."
            )

    def _with_and_without_padding(self) -> tuple[Tensor, Tensor]:
        tokens = torch.tensor([[self._token, self._padding]])
        inputs, seen = torch.stack([tokens, torch.zeros_like(tokens)], 1), tokens != self._padding
        return self(inputs), self.net(tokens, attention_mask=seen.long()).logits

    @property
    def _token(self) -> int:
        return (self._padding + 1) % self.net.config.vocab_size


class BiEncoder(TextClassifier):
    """Logits [B, K] from int64 [B, 2, T], as those of `TextClassifier`, of pairs whose texts are
    read each by itself.

    The head is a linear map of u, v, |u - v| and u v, initially 0, where u and v [B, D] are the
    means of the last hidden states of the two texts (Conneau et al. 2017, "Supervised learning of
    universal sentence representations from natural language inference data"; Reimers and Gurevych
    2019, "Sentence-BERT", tune the encoder below such a head).

    Both texts go through the encoder as one row, in which no token sees the other text; the second
    begins with the first token of the row, as a text by itself does.
    """

    networks = "MODEL_MAPPING"

    def __init__(self, net: Any, checksum: str | None = None):
        super().__init__(net, checksum)
        net.pooler = None
        self.classifier = nn.Linear(4 * net.config.hidden_size, net.config.num_labels)
        for parameter in self.classifier.parameters():
            nn.init.zeros_(parameter)

    @staticmethod
    def new_parts(net: Any) -> dict[str, nn.Module]:
        return {name: part for name, part in net.named_children() if name == "pooler"}

    @property
    def head(self) -> nn.Module:
        return self.classifier

    def forward(self, inputs: Tensor) -> Tensor:
        u, v = self._means(inputs)
        return self.classifier(torch.cat([u, v, (u - v).abs(), u * v], 1))

    def _means(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean states [B, D] of the first and the second texts."""
        begin = inputs[:, 0, :1]
        tokens = torch.cat([begin, inputs[:, 0]], 1)
        second = torch.cat([torch.ones_like(begin), inputs[:, 1]], 1) == 1
        seen = tokens != self._padding
        places = torch.where(second, second.cumsum(1), (~second).cumsum(1))
        positions = places + self._first - 1
        hidden = (second[:, :, None] != second[:, None, :]) | ~seen[:, None]
        read = self._read(tokens, positions, torch.zeros_like(tokens), hidden)
        means = [
            (read.last_hidden_state * kept[:, :, None]).sum(1) / kept.sum(1, keepdim=True).clamp(1)
            for kept in (seen & ~second, seen & second)
        ]
        return means[0], means[1]

    def _with_and_without_padding(self) -> tuple[Tensor, Tensor]:
        one, padding = self._token, self._padding
        inputs = torch.tensor([[[one, one, one, padding], [0, 0, 1, 0]]])
        alone = self.net(torch.tensor([[one, one]])).last_hidden_state.mean(1)
        return torch.cat(self._means(inputs)), alone.expand(2, -1)


PAIRS = {"cross_encoder": TextClassifier, "bi_encoder": BiEncoder}
"""How a pair is read: as one text, or each text by itself."""


def text_classifier(
    trained: FineTuned,
    config: Any,
    published: PublishedWeights | None,
    shape: tuple[int, ...],
    classes: int,
    kind: type[TextClassifier] = TextClassifier,
) -> nn.Module:
    """An encoder with a head of so many classes; published: its weights, None for random ones.
    shape: of an input. Raises UserError for inputs that the encoder cannot have."""
    network = getattr(library("transformers"), kind.networks)[type(config)]
    config.num_labels = classes
    if published is None or planning():
        net, checksum = network(config), None
    else:
        (file, *_), checksum = published.verified()
        with torch.device("meta"):
            new = tuple(f"{name}." for name in kind.new_parts(network(config)))
        net = with_weights(network, config, file, new)
    model = kind(net, checksum)
    if len(shape) != 2 or shape[0] != 2 or shape[1] > model.length:
        raise UserError(
            f"this model needs texts of shape (2, {model.length}) at most, token numbers and the "
            f"numbers of their texts, and these inputs are {shape}."
        )
    if not planning():
        model.check_mask()
    head, (first, last) = model.head, outer_blocks(net.base_model)
    adapt(net, trained, head)
    train_part(net, trained.train, head, first.parameters(), last.parameters())
    return model


def outer_blocks(encoder: Any) -> tuple[nn.ModuleList, nn.ModuleList]:
    """What comes before the layers of an encoder, and the last layer with what follows it."""
    children = [*encoder.children()]
    for place, part in enumerate(children):
        for module in part.modules():
            if isinstance(module, nn.ModuleList) and len(module):
                last = [module[-1], *children[place + 1 :]]
                return nn.ModuleList(children[:place]), nn.ModuleList(last)
    raise UserError(f"{type(encoder).__name__} has no layers in a list, and cannot be trained.")
