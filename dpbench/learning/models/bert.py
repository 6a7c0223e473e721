"""BERT for text classification, from the transformers library."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.fetch.weights import NAMES, verified_checksum, weights_file
from dpbench.learning.data.tokens import PADDING
from dpbench.learning.models.layers import MAX_LAYERS
from dpbench.learning.models.lora import Lora
from dpbench.learning.models.pretrained import attention, loading_weights, planning, refuse_missing
from dpbench.learning.models.trained_parts import adapt, check_train, train_part
from dpbench.learning.models.weights import check_weights, public_note
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, Share, fraction, integer

HEAD = "classifier."
"""What the names of the head's tensors begin with."""


@dataclass(frozen=True)
class Bert:
    """BERT of given sizes, with random weights or those of `name` on the Hugging Face hub.

    Inputs are int64 [B, 2, T]: token numbers (0 is padding) and token types; T is at most `length`.
    vocabulary: number of tokens. dropout: in hidden layers and attention. weights: a folder written
    by `save_pretrained`, used instead of the hub; checksum: "sha256:..." of its weights, or None
    for any. train, lora, share: see `dpbench.models.trained_parts`; the last block is the last
    encoder layer and the pooler, the head is the classifier. Source: Devlin et al. 2019; with
    the sizes of bert-base-cased and three classes 108,312,579 parameters, 7,680,771 of them in the
    last layer and head, as in the calibration paper (Bu et al.).

    Raises UserError if pre-trained weights are not available, lack more than the head, or have
    other sizes.
    """

    name: str
    pretrained: bool
    layers: int
    hidden: Count
    heads: Count
    intermediate: Count
    vocabulary: Count
    length: Count
    dropout: float
    train: str
    lora: Lora | None = None
    share: Share = 0.01
    weights: str | None = None
    checksum: str | None = None

    def __post_init__(self) -> None:
        integer("model.layers", self.layers, most=MAX_LAYERS)
        fraction("model.dropout", self.dropout, zero=True)
        check_train(self.train, self.lora)
        check_weights(self.pretrained, self.weights, self.checksum)
        if self.checksum is not None and self.weights is None:
            raise UserError("model.checksum of BERT needs a local folder: set model.weights to it.")

    @property
    def note(self) -> str:
        return public_note(self.name, self.checksum) if self.pretrained else ""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 2 or shape[0] != 2 or shape[1] > self.length:
            raise UserError(
                f"model=bert needs texts of shape (2, {self.length}) at most, token numbers and "
                f"token types, and these inputs are {shape}."
            )
        net, checksum = self._classifier(classes)
        last = nn.ModuleList([net.bert.encoder.layer[-1], net.bert.pooler])
        adapt(net, self.train, net.classifier, self.lora, self.share)
        first = net.bert.embeddings.parameters()
        train_part(net, self.train, net.classifier, first, last.parameters())
        return TextClassifier(net, checksum)

    def _classifier(self, classes: int) -> tuple[Any, str | None]:
        """The network, and the checksum of its weights if they come from a folder."""
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
        if not self.pretrained or planning():
            return transformers.BertForSequenceClassification(config), None
        if self.weights is None:
            return self._published(self.name, config), None
        file = weights_file(self.weights)
        if file.name not in NAMES:
            raise UserError(f"model.weights={file} is not a folder with {' or '.join(NAMES)}.")
        checksum = verified_checksum(file, self.checksum)
        return self._published(str(file.parent), config), checksum

    def _published(self, place: str, config: Any) -> Any:
        """The network, in float32, with the weights in a folder or on the hub.

        UserError if any but those of the head are missing, or of other sizes.
        """
        with loading_weights(place):
            net, found = library("transformers").BertForSequenceClassification.from_pretrained(
                place, config=config, ignore_mismatched_sizes=True, output_loading_info=True
            )
            lacking = {key for key in found["missing_keys"] if not key.startswith(HEAD)}
            refuse_missing(lacking, place, "a BERT of these sizes")
            other = [key for key, *_ in found["mismatched_keys"] if not key.startswith(HEAD)]
            other += [key for key in found["unexpected_keys"] if "encoder.layer." in key]
            if other:
                raise RuntimeError(min(other))
        return net.float()


class TextClassifier(nn.Module):
    """Logits [B, K] from int64 [B, 2, T], token numbers and token types.

    checksum: of the initial weights. Calls the parts of a BertForSequenceClassification one by one:
    the library's own attention mask depends on token values, which torch.func's vmap does not
    allow.
    """

    net: Any

    def __init__(self, net: Any, checksum: str | None = None):
        super().__init__()
        self.net, self.checksum = net, checksum

    def forward(self, inputs: Tensor) -> Tensor:
        tokens, types = inputs.unbind(1)
        # One row per example: a look-up shared by the batch would have no per-example gradient.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        bert = self.net.bert
        hidden = bert.embeddings(tokens, token_type_ids=types, position_ids=positions)
        with attention(tokens.device):
            hidden = bert.encoder(hidden, attention_mask=padding_mask(tokens, hidden.dtype))[0]
        return self.net.classifier(self.net.dropout(bert.pooler(hidden)))


def padding_mask(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """The additive attention mask [B, 1, 1, T]: 0, and the lowest finite number at padding."""
    mask = torch.zeros_like(tokens, dtype=dtype)
    mask = mask.masked_fill(tokens == PADDING, torch.finfo(dtype).min)
    return mask[:, None, None, :]
