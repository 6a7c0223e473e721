"""Networks of other libraries, without their heads: from prepared images to one vector each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.fetch.published_weights import tensors_of, with_encoder_weights
from dpbench.system.errors import MALFORMED_JSON, UserError, first_line
from dpbench.system.validate import one_of

Constants = tuple[tuple[float, ...], tuple[float, ...]]
"""The mean and the standard deviation by which a network expects channels to be normalised."""


@dataclass(frozen=True)
class TimmBackbone:
    """A network of timm, by name. pooling: as in timm; None for the network's own."""

    name: str
    pooling: str | None

    @property
    def title(self) -> str:
        """What it is called in messages and notes."""
        return self.name

    def untrained(self) -> nn.Module:
        return self._made()

    def _made(self, **settings: Any) -> nn.Module:
        timm = library("timm")
        one_of("features.backbone", self.name.partition(".")[0], timm.list_models())
        pooled = {} if self.pooling is None else {"global_pool": self.pooling}
        return timm.create_model(self.name, num_classes=0, **pooled, **settings)

    def constants(self) -> Constants:
        """What its published weights expect."""
        config = library("timm").get_pretrained_cfg(self.name)
        return tuple(config.mean), tuple(config.std)

    def trained(self, file: Path) -> nn.Module:
        """The network with a file's weights, which must be all of its own and no others."""
        with torch.device("meta"):
            own = self.untrained().state_dict()
            whole = library("timm").create_model(self.name).state_dict()
        tensors = named_as_in_timm(tensors_of(file), whole, own)
        without_head = {k: v for k, v in tensors.items() if k in own or k not in whole}
        overlay = {"state_dict": without_head, "num_classes": 0, "label_offset": 0}
        try:
            return self._made(pretrained=True, pretrained_cfg_overlay=overlay)
        except Exception as error:  # converters of older files may raise any exception
            raise UserError(
                f"{file} has the weights of another network than features.backbone={self.title}: "
                "name the network that they are of, or give the weights of this one."
            ) from error


def named_as_in_timm(
    tensors: Mapping[str, Tensor], whole: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """The tensors of a file by the names of a network's; unchanged if they do not fit.

    They are named as in timm, with or without a classifier; or by names of which timm has none, but
    in timm's order: then the kinds (`weight`, `running_mean`) and shapes must agree. own: the
    network's tensors; whole: with those of its classifier, which may be of any shape.
    """
    if own.keys() & tensors.keys():
        return tensors
    for names in (whole, own):
        if len(tensors) == len(names) and all(
            _kind(theirs) == _kind(ours)
            and (ours not in own or tensors[theirs].shape == own[ours].shape)
            for theirs, ours in zip(tensors, names, strict=True)
        ):
            return dict(zip(names, tensors.values(), strict=True))
    return tensors


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


POOLINGS = ("avg", "token")


@dataclass(frozen=True)
class TransformersBackbone:
    """The model of transformers that a file config.json describes.

    pooling: `avg` for the mean over tokens, `token` for the first one, None for the first token, or
    for the mean over positions of a convolutional network.
    """

    config: Path
    pooling: str | None

    title = "null"

    def untrained(self) -> nn.Module:
        net = library("transformers").AutoModel.from_config(self._described())
        return _Pooled(net, self.pooling)

    def _described(self) -> Any:
        try:
            return library("transformers").AutoConfig.from_pretrained(
                self.config, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # the file may contain anything
            raise UserError(
                f"{self.config} describes no model of transformers: set features.backbone to a "
                "name of timm, or give a folder that save_pretrained has written."
            ) from error

    def constants(self) -> Constants:
        """What its published weights expect; UserError where that is not known."""
        file = self.config.with_name("preprocessor_config.json")
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return tuple(map(float, found["image_mean"])), tuple(map(float, found["image_std"]))
        except (OSError, *MALFORMED_JSON) as error:
            raise UserError(
                f"{file} does not say image_mean and image_std: set features.normalization to what "
                "the weights expect."
            ) from error

    def trained(self, file: Path) -> nn.Module:
        """The network with the weights of its folder."""
        return _Pooled(with_encoder_weights(self._described(), file), self.pooling)


class _Pooled(nn.Module):
    """One vector [B, D] per image, from the last hidden states of a transformers model."""

    net: Any

    def __init__(self, net: nn.Module, pooling: str | None):
        super().__init__()
        self.net, self.pooling = net, pooling

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.net(pixel_values=images).last_hidden_state
        if hidden.dim() == 4:
            return hidden.mean((2, 3))
        return hidden.mean(1) if self.pooling == "avg" else hidden[:, 0]


Backbone = TimmBackbone | TransformersBackbone
"""A network from images [B, 3, S, S] to features [B, D]."""


@lru_cache(maxsize=32)
def width(backbone: Backbone, size: int) -> int:
    """The number of features of a network, found without memory or random numbers.

    Raises UserError for one that gives no vector for an image [3, size, size].
    """
    try:
        with torch.device("meta"), torch.no_grad():
            shape = backbone.untrained().eval()(torch.empty(1, 3, size, size)).shape
    except UserError:
        raise
    except Exception as error:  # libraries do not document the types
        why = first_line(error, type(error).__name__).rstrip(".")
        raise UserError(
            f"features.backbone={backbone.title} gives no features of {size} x {size} pixels with "
            f"features.pooling={backbone.pooling or 'null'}: {why}."
        ) from error
    if len(shape) != 2:
        raise UserError(
            f"features.backbone={backbone.title} gives features of shape {tuple(shape[1:])}, and "
            "not one vector: set features.pooling=avg."
        )
    return shape[1]
