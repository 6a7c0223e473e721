"""Vision transformers, from timm."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.data.fetch.library import library
from dpbench.data.fetch.weights import NAMES, tensors_of, verified_checksum, weights_file
from dpbench.models.images import image_shape
from dpbench.models.pretrained import attention, loading_weights, planning, train_biases, train_only
from dpbench.models.weights import check_weights
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, one_of

TRAIN = ("all", "last_block_and_head", "biases_and_head")


@dataclass(frozen=True)
class Vit:
    """A vision transformer named as in timm; the calibration paper has vit_base_patch16_224.

    weights: a local file, used instead of `name` on the Hugging Face hub at `revision` (None: the
    newest). checksum: "sha256:..." of the file used, or None for any. Images are resized to
    `image_size` by bilinear interpolation, grey ones are repeated over three channels, and all are
    normalised as the published weights expect. train: `all`, `last_block_and_head` or
    `biases_and_head`. Source:
    Dosovitskiy et al. 2021. On ten classes the tiny one has 5,526,346 parameters, the base one
    85,806,346 (last block and head: 7,097,098).

    Raises UserError for an unknown name or if pre-trained weights are not available.
    """

    name: str
    pretrained: bool
    image_size: Count
    train: str
    revision: str | None = None
    weights: str | None = None
    checksum: str | None = None

    def __post_init__(self) -> None:
        one_of("model.train", self.train, TRAIN)
        check_weights(self.pretrained, self.weights, self.checksum)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape("vit", shape, least=1)
        if channels not in (1, 3):
            raise UserError(f"model=vit needs 1 or 3 channels, and these images have {channels}.")
        net, checksum = self._transformer(classes)
        if self.train == "biases_and_head":
            train_biases(net, net.head)
        elif self.train != "all":
            train_only(net, [net.blocks[-1], net.norm, net.fc_norm, net.head])
        config = net.pretrained_cfg
        prepared = ImagePreparation(self.image_size, config["mean"], config["std"])
        return ImageClassifier(prepared, net, checksum)

    def _transformer(self, classes: int) -> tuple[Any, str | None]:
        """The network, and the checksum of its weights file, if any."""
        timm = library("timm")
        known = timm.list_models(module="vision_transformer")
        one_of("model.name", self.name.partition(".")[0], known)
        make = partial(
            timm.create_model,
            self.name,
            num_classes=classes,
            img_size=self.image_size,
            dynamic_img_size=False,
        )
        if not self.pretrained or planning():
            return with_supported_layers(make()), None
        with loading_weights(self.name):
            file = weights_file(self.weights) if self.weights is not None else self._from_hub()
            checksum = verified_checksum(file, self.checksum)
            net = make(pretrained=True, pretrained_cfg_overlay={"state_dict": self._read(file)})
        net.pretrained_cfg = net.default_cfg = _without_tensors(net.pretrained_cfg)
        return with_supported_layers(net), checksum

    def _from_hub(self) -> Path:
        """The file in the Hugging Face cache, downloaded if it is missing."""
        repository = library("timm").get_pretrained_cfg(self.name).hf_hub_id
        if not repository:
            raise UserError(f"the hub has no weights of {self.name}: set model.weights to a file.")
        hub = library("huggingface_hub")
        return Path(hub.hf_hub_download(repository, NAMES[0], revision=self.revision))

    def _read(self, file: Path) -> dict[str, Tensor]:
        """The file's tensors; UserError if one of the network's tensors is missing."""
        tensors = tensors_of(file)
        with torch.device("meta"):
            net = library("timm").create_model(self.name, num_classes=0)
        if missing := sorted(net.state_dict().keys() - tensors.keys()):
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UserError(f"{file} has no weights for {self.name}: it lacks {missing[0]}{more}.")
        return tensors


class ImageClassifier(nn.Module):
    """Logits [B, K] of images [B, 1 or 3, H, W] in [0, 1]; checksum: of the initial weights."""

    def __init__(self, prepared: nn.Module, net: nn.Module, checksum: str | None = None):
        super().__init__()
        self.prepared, self.net, self.checksum = prepared, net, checksum

    def forward(self, images: Tensor) -> Tensor:
        with attention(images.device):
            return self.net(self.prepared(images))


class ImagePreparation(nn.Module):
    """Resizes and normalises images: [B, 1 or 3, H, W] in [0, 1] to [B, 3, size, size]."""

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != (self.size, self.size):
            images = F.interpolate(images, (self.size, self.size), mode="bilinear")
        return (images.expand(-1, 3, -1, -1) - self.mean) / self.std


class PatchTokens(nn.Module):
    """Patches [B, T, C] to tokens [B, 1 + T, C]: prepends the class token and adds positions.

    first: the class token [1, 1, C]; positions: [1, 1 + T, C]. Both become embedding layers, for
    which the fast engine has a rule.
    """

    def __init__(self, first: Tensor, positions: Tensor):
        super().__init__()
        self.first = nn.Embedding.from_pretrained(first.detach()[0], freeze=False)
        self.positions = nn.Embedding.from_pretrained(positions.detach()[0], freeze=False)

    def forward(self, patches: Tensor) -> Tensor:
        indices = torch.arange(self.positions.num_embeddings, device=patches.device)
        indices = indices.expand(len(patches), -1)
        tokens = torch.cat([self.first(indices[:, :1]), patches], 1)
        return tokens + self.positions(indices)


def _without_tensors(config: dict[str, Any]) -> dict[str, Any]:
    """timm's configuration of the network, without the weights."""
    return {key: value for key, value in config.items() if key != "state_dict"}


def with_supported_layers(net: Any) -> Any:
    """The same transformer with layers for which the fast engine has rules, by exact type."""
    for module in net.modules():
        if type(module) is library("timm").layers.LayerNorm:
            module.__class__ = nn.LayerNorm  # equivalent, except for an option that is not in use
    if _has_plain_tokens(net):
        net.patch_embed = nn.Sequential(net.patch_embed, PatchTokens(net.cls_token, net.pos_embed))
        net.cls_token = net.pos_embed = None  # timm then leaves the tokens unchanged
    return net


def _has_plain_tokens(net: Any) -> bool:
    """Whether the tokens are one class token and the patches, each with a position."""
    if net.cls_token is None or net.reg_token is not None or net.pos_embed is None:
        return False
    return net.pos_embed.shape[1] == net.patch_embed.num_patches + 1
