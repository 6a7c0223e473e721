"""BERT for the classification of texts, by transformers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.data.fetch.library import library
from dpbench.data.tokens import PADDING
from dpbench.errors import UserError
from dpbench.models.layers import MOST_LAYERS
from dpbench.models.pretrained import attention, planning, train_only, weights_of
from dpbench.models.weights import NAMES, check_weights, checked, weights_in
from dpbench.validate import fraction, integer, one_of

TRAIN = ("all", "last_layer_and_head")


@dataclass(frozen=True)
class Bert:
    """BERT by its sizes, with random weights or with those of `name` on the Hugging Face hub.

    Inputs are int64 [B, 2, T]: token numbers (0 is padding) and token types; T is at most `length`.
    vocabulary: number of tokens. dropout: in hidden layers and attention. weights: a folder that
    `save_pretrained` wrote, in place of the hub; checksum: "sha256:..." of the weights in it, or
    None for any. train: `all`, or `last_layer_and_head`, which is the last encoder layer, the
    pooler and the classifier. Source: Devlin et al. 2019; with the sizes of bert-base-cased and
    three classes 108,312,579 parameters, 7,680,771 of them in the last layer and head, as the
    calibration paper (Bu et al.) trains it.

    Raises UserError where pre-trained weights cannot be had, or have other sizes.
    """

    name: str
    pretrained: bool
    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    length: int
    dropout: float
    train: str
    weights: str | None = None
    checksum: str | None = None

    def __post_init__(self) -> None:
        integer("model.layers", self.layers, most=MOST_LAYERS)
        for name in ("hidden", "heads", "intermediate", "vocabulary", "length"):
            integer(f"model.{name}", getattr(self, name))
        fraction("model.dropout", self.dropout, zero=True)
        one_of("model.train", self.train, TRAIN)
        check_weights(self.pretrained, self.weights, self.checksum)
        if self.checksum is not None and self.weights is None:
            raise UserError("model.checksum of BERT is of a folder: set model.weights to it.")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 2 or shape[0] != 2 or shape[1] > self.length:
            raise UserError(
                f"model=bert needs texts of shape (2, {self.length}) at most, token numbers and "
                f"token types, and these inputs are {shape}."
            )
        net, checksum = self._classifier(classes)
        if self.train != "all":
            train_only(net, [net.bert.encoder.layer[-1], net.bert.pooler, net.classifier])
        return TextClassifier(net, checksum)

    def _classifier(self, classes: int) -> tuple[Any, str | None]:
        """The network, and the checksum of the weights that it has from a folder."""
        transformers = library("transformers")
        config = transformers.BertConfig(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            num_attention_heads=self.heads,
            intermediate_size=self.intermediate,
            vocab_size=self.vocabulary,
            max_position_embeddings=self.length,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
            num_labels=classes,
            pad_token_id=PADDING,
        )
        make = transformers.BertForSequenceClassification
        if not self.pretrained or planning():
            return make(config), None
        if self.weights is None:
            with weights_of(self.name):
                return make.from_pretrained(self.name, config=config), None
        file = weights_in(self.weights)
        if file.name not in NAMES:
            raise UserError(f"model.weights={file} is no folder with {' or '.join(NAMES)}.")
        checksum = checked(file, self.checksum)
        with weights_of(str(file)):
            return make.from_pretrained(file.parent, config=config), checksum


class TextClassifier(nn.Module):
    """Logits [B, K] from int64 [B, 2, T], token numbers and token types; checksum: of its first
    weights.

    Goes through the parts of a BertForSequenceClassification itself: the library's own way from
    tokens to an attention mask looks at values, which torch.func's vmap does not allow.
    """

    net: Any

    def __init__(self, net: Any, checksum: str | None = None):
        super().__init__()
        self.net, self.checksum = net, checksum

    def forward(self, inputs: Tensor) -> Tensor:
        tokens, types = inputs.unbind(1)
        # One row per example: a table looked up once for the whole batch has no example's gradient.
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        bert = self.net.bert
        hidden = bert.embeddings(tokens, token_type_ids=types, position_ids=places)
        with attention(tokens.device):
            hidden = bert.encoder(hidden, attention_mask=hiding_padding(tokens, hidden.dtype))[0]
        return self.net.classifier(self.net.dropout(bert.pooler(hidden)))


def hiding_padding(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to attention scores [B, 1, 1, T]: 0, and the least number at padding."""
    mask = torch.zeros_like(tokens, dtype=dtype)
    mask = mask.masked_fill(tokens == PADDING, torch.finfo(dtype).min)
    return mask[:, None, None, :]
