"""Networks for images, from timm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.learning.data.derive.backbones import named_as_in_timm
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.fetch.published_weights import (
    PublishedWeights,
    loading_weights,
    public_note,
    refuse_missing,
    tensors_of,
)
from dpbench.learning.models.lora import Lora
from dpbench.learning.models.pretrained import attention, planning, published_weights_of
from dpbench.learning.models.sizes import image_shape
from dpbench.learning.models.supported_layers import with_supported_layers
from dpbench.learning.models.trained_parts import adapt, check_train, train_part
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, Share, one_of


@dataclass(frozen=True)
class TimmNetwork:
    """A network named as in timm, whose batch normalisations keep their published statistics, or
    with `fix` become group normalisations. The new head of a pre-trained one is 0 at first.

    package, weights: an installed package with weights, or a local file, used instead of those of
    `name` on the Hugging Face hub at `revision` (None: the newest). checksum: "sha256:..." of the
    file used, or None for any. Images are resized to `image_size` by bilinear interpolation, grey
    ones are repeated over three channels, and all are normalised: by the constants that timm names
    if `normalization` is None. train, lora, share: see `dpbench.models.trained_parts`. Vision
    transformers: Dosovitskiy et al. 2021. On ten classes the tiny one has 5,526,346 parameters, the
    base one 85,806,346 (last block and head: 7,097,098).

    Raises UserError for an unknown name or if pre-trained weights are not available.
    """

    name: str
    pretrained: bool
    image_size: Count
    train: str
    lora: Lora | None = None
    share: Share = 0.01
    package: str | None = None
    revision: str | None = None
    weights: str | None = None
    checksum: str | None = None
    normalization: Normalization | None = None
    fix: bool = False

    def __post_init__(self) -> None:
        check_train(self.train, self.lora)
        published_weights_of(self).check_used(self.pretrained)

    @property
    def note(self) -> str:
        return public_note(self.name, self.checksum) if self.pretrained else ""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape(self.name, shape, least=1)
        if channels not in (1, 3):
            raise UserError(
                f"model.name={self.name} needs 1 or 3 channels, and these images have {channels}."
            )
        net, checksum = self._network(classes)
        head = net.get_classifier()
        if self.pretrained:
            # Features of public networks are long (a norm of 50 is usual), and with timm's random
            # heads their first loss may be in the tens, which few private steps do not mend.
            for part in head.parameters():
                nn.init.zeros_(part)
        net = with_supported_layers(net, self.fix)
        adapt(net, self, head)
        train_part(net, self.train, head, *_outer_blocks(net))
        config = net.pretrained_cfg
        constants = self.normalization or Normalization(config["mean"], config["std"])
        prepared = ImagePreparation(self.image_size, constants.mean, constants.std)
        return ImageClassifier(prepared, net, checksum)

    def _network(self, classes: int) -> tuple[Any, str | None]:
        timm = library("timm")
        base = one_of("model.name", self.name.partition(".")[0], timm.list_models())
        settings: dict[str, Any] = {"num_classes": classes}
        if timm.get_pretrained_cfg(self.name).fixed_input_size:
            settings["img_size"] = self.image_size
        if base in timm.list_models(module="vision_transformer"):
            settings["dynamic_img_size"] = False  # for which the tokens have one axis
        make = partial(timm.create_model, self.name, **settings)
        if not self.pretrained or planning():
            return make(), None
        (file, *_), checksum = self._found().verified()
        with loading_weights(self.name):
            net = make(pretrained=True, pretrained_cfg_overlay={"state_dict": self._read(file)})
        config = {k: v for k, v in net.pretrained_cfg.items() if k != "state_dict"}
        net.pretrained_cfg = net.default_cfg = config
        return net, checksum

    def _found(self) -> PublishedWeights:
        published = published_weights_of(self)
        if not published.nowhere:
            return published
        repository = library("timm").get_pretrained_cfg(self.name).hf_hub_id
        if not repository:
            raise UserError(f"the hub has no weights of {self.name}: set model.weights to a file.")
        return replace(published, hub=repository)

    def _read(self, file: Path) -> Mapping[str, Tensor]:
        create = library("timm").create_model
        with torch.device("meta"):
            own = create(self.name, num_classes=0).state_dict()
            whole = create(self.name).state_dict()
        tensors = named_as_in_timm(tensors_of(file), whole, own)
        refuse_missing(own.keys() - tensors.keys(), file, self.name)
        return tensors


def _outer_blocks(net: Any) -> tuple[Iterator[nn.Parameter], Iterator[nn.Parameter]]:
    """The parameters of the stem, and of the last block and what follows it, without the head."""
    groups = library("timm").models.group_parameters(net, net.group_matcher(coarse=False))
    (stem, *_, last, _) = groups.values()
    return map(net.get_parameter, stem), map(net.get_parameter, last)


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

    def __init__(self, size: int, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != (self.size, self.size):
            images = F.interpolate(images, (self.size, self.size), mode="bilinear")
        return (images.expand(-1, 3, -1, -1) - self.mean) / self.std
