"""BERT for text classification, of sizes that are given one by one."""

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta
from torch import nn

from dpbench.learning.data.fetch.encoders import encoder_config
from dpbench.learning.data.fetch.published_weights import public_note
from dpbench.learning.models.lora import Lora
from dpbench.learning.models.pretrained import published_weights_of
from dpbench.learning.models.sizes import MAX_LAYERS, Dropout
from dpbench.learning.models.text import text_classifier
from dpbench.learning.models.trained_parts import check_train
from dpbench.system.validate import Count, Share


@dataclass(frozen=True)
class Bert:
    """A BERT of given sizes, with random weights or those of `name` on the Hugging Face hub.

    vocabulary: number of tokens, of which 0 is padding. length: the most tokens of a text. dropout:
    in hidden layers and attention. weights: a folder written by `save_pretrained`, used instead of
    the hub; checksum: "sha256:..." of its weights, or None for any. Everything else is as in
    `dpbench.models.text.Text`; the last block is the last encoder layer and the pooler. Source:
    Devlin et al. 2019; with the sizes of bert-base-cased and three classes 108,312,579 parameters,
    7,680,771 of them in the last layer and head, as in the calibration paper (Bu et al.).
    """

    name: str
    pretrained: bool
    layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    hidden: Count
    heads: Count
    intermediate: Count
    vocabulary: Count
    length: Count
    dropout: Dropout
    train: str
    lora: Lora | None = None
    share: Share = 0.01
    weights: str | None = None
    checksum: str | None = None

    def __post_init__(self) -> None:
        check_train(self.train, self.lora)
        published_weights_of(self).check_used(self.pretrained)

    @property
    def note(self) -> str:
        return public_note(self.name, self.checksum) if self.pretrained else ""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        sizes = {
            "model_type": "bert",
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.length,
        }
        config = encoder_config(sizes, self.dropout)
        published = published_weights_of(self)
        if published.nowhere:
            published = replace(published, hub=self.name)
        return text_classifier(self, config, published if self.pretrained else None, shape, classes)
