"""Features from a frozen network that somebody else has trained on public images."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.learning.data.dataset import Dataset
from dpbench.learning.data.derive.backbones import (
    POOLINGS,
    Backbone,
    TimmBackbone,
    TransformersBackbone,
)
from dpbench.learning.data.derive.backbones import width as width_of
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.fetch.published_weights import PublishedWeights
from dpbench.system.errors import UserError
from dpbench.system.seeds import torch_state_kept
from dpbench.system.validate import ImageSide, one_of

AT_ONCE = 32
"""The number of images in each pass of a network."""

LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True, kw_only=True)
class FrozenNetwork:
    """A network that somebody else has trained, whose features are kept in float16.

    package, weights, hub, revision, checksum: see PublishedWeights.
    """

    package: str | None
    weights: str | None = None
    hub: str | None
    revision: str | None
    checksum: str | None

    dtype = np.float16

    @property
    def _published(self) -> PublishedWeights:
        return PublishedWeights.of(vars(self))

    @property
    def _short_checksum(self) -> str:
        return self._published.verified()[1].removeprefix("sha256:")[:12]

    def check_files(self) -> None:
        """UserError for missing weights, and for those of another checksum."""
        self._published.verified()

    def _with_weights(self, network: Callable[[Path], nn.Module]) -> nn.Module:
        (file, *_), _ = self._published.verified()
        with torch_state_kept(torch.device("cpu")):
            return network(file).eval()


@dataclass(frozen=True, kw_only=True)
class Pretrained(FrozenNetwork):
    """The last features of a frozen network, pooled to one vector per image, in float16.

    backbone: its name in timm; None for the transformers model that a config.json beside the
    weights describes. pooling: see TimmBackbone and TransformersBackbone. image_size: the side to
    which images are scaled, by bilinear interpolation. normalization: of the pixels, by the
    constants that the weights expect; None for those that timm or the folder names.

    Every image is transformed by itself, and nothing is measured on the data: features are neither
    normalised nor clipped.
    """

    backbone: str | None
    pooling: str | None
    image_size: ImageSide
    normalization: Normalization | None

    def __post_init__(self) -> None:
        if self.backbone is None and self.pooling is not None:
            one_of("features.pooling", self.pooling, POOLINGS)
        if self._published.nowhere and self.checksum is None:
            raise UserError(
                "features=pretrained needs features.backbone=NAME and features.weights=FILE: or "
                "use features=efficientnet_lite0, which has both."
            )

    @property
    def _network(self) -> Backbone:
        if self.backbone is not None:
            return TimmBackbone(self.backbone, self.pooling)
        return TransformersBackbone(self._published.config_file(), self.pooling)

    @property
    def _constants(self) -> Normalization:
        return self.normalization or Normalization(*self._network.constants())

    @property
    def note(self) -> str:
        return (
            f"The features are those of {self.backbone or 'a transformers model'} with weights "
            f"from {self._published.place} ({self.checksum}), which are taken to be public: not "
            "covered by epsilon. Each example's features depend on that example alone."
        )

    def shape_of(self, dataset: Dataset) -> tuple[int, ...]:
        """The shape of an image's features; UserError for data that are no images."""
        shape = tuple(dataset.shape)
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise UserError(
                "features=pretrained needs images of 1 or 3 channels, and the inputs of "
                f"{dataset.name} are {shape}: use features=none."
            )
        return (width_of(self._network, self.image_size),)

    def file_name(self, inputs: str) -> str:
        """The name of a file of features: 154 MB for 60,000 images and 1,280 features."""
        prepared = repr((self.backbone, self.image_size, "bilinear", self._constants))
        name = hashlib.sha256(prepared.encode()).hexdigest()[:8]
        return f"pretrained_{self._short_checksum}_{self.pooling or 'own'}_{name}_{inputs}"

    def extractor(self, dataset: Dataset, device: torch.device) -> Callable[[Tensor], Tensor]:
        network = self._with_weights(self._network.trained).to(device)
        normalize = self._constants
        size = (self.image_size, self.image_size)

        @torch.inference_mode()
        def features(images: Tensor) -> Tensor:
            images = images.to(device).expand(-1, 3, -1, -1)
            scaled = F.interpolate(images, size, mode="bilinear", antialias=True)
            return network(normalize(scaled)).clamp(-LARGEST, LARGEST).half().cpu()

        draw = torch.Generator().manual_seed(0)
        return one_by_one(features, torch.rand(AT_ONCE, *dataset.shape, generator=draw))


def one_by_one(function: Callable[[Tensor], Tensor], rows: Tensor) -> Callable[[Tensor], Tensor]:
    """A function of batches of any size whose rows have the same bits whatever the others are.

    Kernels add in an order that may depend on the number of rows, and on the place of a row. So
    each batch is padded to AT_ONCE rows; if a row depends on its place or its neighbours all the
    same, as tried on so many random `rows` [B, ...], batches have one row.
    """
    alike, crowd = function(rows[-1:].expand_as(rows)), function(rows)
    same = torch.equal(alike, crowd[-1:].expand_as(alike))
    size = len(rows) if same else 1

    def of_batch(inputs: Tensor) -> Tensor:
        parts = inputs.split(size)
        return torch.cat([function(_padded(part, size))[: len(part)] for part in parts])

    return of_batch


def _padded(rows: Tensor, size: int) -> Tensor:
    """The rows [B, ...] followed by zeros, `size` rows in all."""
    return torch.cat([rows, rows.new_zeros(size - len(rows), *rows.shape[1:])])
