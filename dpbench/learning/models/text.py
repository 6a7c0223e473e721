"""Encoders of texts with a classification head, from the transformers library."""

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.learning.data.fetch.encoders import encoder_config
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
from dpbench.system.validate import Share


@dataclass(frozen=True, kw_only=True)
class Text:
    """An encoder of transformers (BERT, RoBERTa, DistilBERT, ELECTRA, MiniLM) and a new head.

    Inputs are int64 [B, 2, T]: token numbers, then the number of the text that each belongs to; T
    is at most `length`. config: what the config.json beside the weights says, which the sizes are
    read from; None for that of the weights. package, weights, hub, revision, checksum: see
    PublishedWeights; pretrained: false for random weights. dropout: in all layers; None for that
    of the config. train, lora, share: see `dpbench.models.trained_parts`; the last block is the
    last layer of the encoder and what follows it.

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

    def __post_init__(self) -> None:
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
        if self.config is None:
            raise UserError(
                "model=text needs an encoder: set model.package, model.weights (a folder) or "
                "model.hub and model.revision."
            )
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
        return text_classifier(self, self._sizes, published, shape, classes)


def text_classifier(
    trained: FineTuned,
    config: Any,
    published: PublishedWeights | None,
    shape: tuple[int, ...],
    classes: int,
) -> nn.Module:
    """An encoder with a head of so many classes; published: its weights, None for random ones.
    shape: of an input. Raises UserError for inputs that the encoder cannot have."""
    network = library("transformers").MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    config.num_labels = classes
    if published is None or planning():
        net, checksum = network(config), None
    else:
        (file, *_), checksum = published.verified()
        net = with_weights(network, config, file, _head_names(network, config))
    model = TextClassifier(net, checksum)
    if len(shape) != 2 or shape[0] != 2 or shape[1] > model.length:
        raise UserError(
            f"this model needs texts of shape (2, {model.length}) at most, token numbers and the "
            f"numbers of their texts, and these inputs are {shape}."
        )
    if not planning():
        model.check_mask()
    head = nn.ModuleList(part for name, part in net.named_children() if _is_head(net, name))
    first, last = outer_blocks(net.base_model)
    adapt(net, trained, head)
    train_part(net, trained.train, head, first.parameters(), last.parameters())
    return model


def _is_head(net: Any, name: str) -> bool:
    return name != net.base_model_prefix


def _head_names(network: Any, config: Any) -> tuple[str, ...]:
    """What the names of a new head's tensors begin with."""
    with torch.device("meta"):
        net = network(config)
    return tuple(f"{name}." for name, _ in net.named_children() if _is_head(net, name))


def outer_blocks(encoder: Any) -> tuple[nn.ModuleList, nn.ModuleList]:
    """What comes before the layers of an encoder, and the last layer with what follows it."""
    children = [*encoder.children()]
    for place, part in enumerate(children):
        for module in part.modules():
            if isinstance(module, nn.ModuleList) and len(module):
                last = [module[-1], *children[place + 1 :]]
                return nn.ModuleList(children[:place]), nn.ModuleList(last)
    raise UserError(f"{type(encoder).__name__} has no layers in a list, and cannot be trained.")


class TextClassifier(nn.Module):
    """Logits [B, K] from int64 [B, 2, T], token numbers and the number of each token's text.

    checksum: of the initial weights. Its attention mask is made here, as that of the library
    depends on token values, which torch.func's vmap does not allow.
    """

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

    @property
    def length(self) -> int:
        """The most tokens of a text."""
        return self.net.config.max_position_embeddings - self._first

    def forward(self, inputs: Tensor) -> Tensor:
        tokens, types = inputs.unbind(1)
        # One row per example: a look-up shared by the batch would have no per-example gradient.
        positions = torch.arange(self._first, self._first + tokens.shape[1], device=tokens.device)
        given = {
            "position_ids": positions.expand_as(tokens),
            "token_type_ids": types if self._types else torch.zeros_like(tokens),
        }
        # The additive mask [B, 1, 1, T]: 0, and the lowest finite number at padding.
        dtype = next(self.net.parameters()).dtype
        mask = torch.zeros_like(tokens, dtype=dtype)
        mask = mask.masked_fill(tokens == self._padding, torch.finfo(dtype).min)
        with attention(tokens.device):
            return self.net(
                tokens,
                attention_mask=mask[:, None, None, :],
                **{key: value for key, value in given.items() if key in self._takes},
            ).logits

    @torch.no_grad()
    def check_mask(self) -> None:
        """UserError for an encoder that takes another mask than an additive one."""
        tokens = torch.tensor([[(self._padding + 1) % self.net.config.vocab_size, self._padding]])
        inputs, seen = torch.stack([tokens, torch.zeros_like(tokens)], 1), tokens != self._padding
        with in_mode(self, training=False):
            expected = self.net(tokens, attention_mask=seen.long()).logits
            same = torch.allclose(self(inputs), expected, rtol=1e-3, atol=1e-5)
        if not same:
            raise UserError(
                f"an encoder of the kind {self.net.config.model_type} masks padding in a way of "
                "its own: use one that is built like BERT."
            )
