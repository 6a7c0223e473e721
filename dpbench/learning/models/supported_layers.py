"""Networks of timm with layers for which the fast engine has rules, by exact type."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.learning.data.fetch.library import library
from dpbench.learning.models.batch_norm import freeze_batch_norm, with_group_norm


def with_supported_layers(net: Any, fix: bool = False) -> Any:
    """The same network, in which nothing is done in place and no examples are mixed. fix: GroupNorm
    in place of batch normalisation, which otherwise keeps its statistics."""
    layers = library("timm").layers
    for name, module in list(net.named_modules()):
        if type(module) is layers.LayerNorm:
            module.__class__ = nn.LayerNorm  # equivalent, except for an option that is not in use
        elif type(module) is layers.BatchNormAct2d:
            net.set_submodule(name, _apart(module))
        elif type(module) is layers.Conv2dSame:
            own = name.rpartition(".")[2]  # by which adapters find it
            parts = OrderedDict[str, nn.Module](padding=SamePadding(module))
            net.set_submodule(name, nn.Sequential(parts | {own: _plain(module)}))
        elif getattr(module, "inplace", False):
            module.inplace = False
    if _has_plain_tokens(net):
        net.patch_embed = nn.Sequential(net.patch_embed, PatchTokens(net.cls_token, net.pos_embed))
        net.cls_token = net.pos_embed = None  # timm then leaves the tokens unchanged
    return with_group_norm(net) if fix else freeze_batch_norm(net)


def _apart(norm: Any) -> nn.Module:
    """A batch normalisation and its activation, one after the other."""
    plain = nn.BatchNorm2d(norm.num_features, norm.eps)
    for name, value in (*norm.named_parameters(recurse=False), *norm.named_buffers(recurse=False)):
        setattr(plain, name, value)
    return nn.Sequential(plain, norm.drop, norm.act)


def _plain(convolution: nn.Conv2d) -> nn.Conv2d:
    convolution.__class__ = nn.Conv2d
    convolution.padding = (0, 0)
    return convolution


class SamePadding(nn.Module):
    """Pads images [B, C, H, W] as TensorFlow does before a convolution."""

    def __init__(self, convolution: nn.Conv2d):
        super().__init__()
        self.window = convolution.kernel_size, convolution.stride, convolution.dilation

    def forward(self, images: Tensor) -> Tensor:
        return library("timm").layers.pad_same(images, *self.window)


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


def _has_plain_tokens(net: Any) -> bool:
    """Whether the tokens are one class token and the patches, each with a position."""
    first, registers, positions = (
        getattr(net, name, None) for name in ("cls_token", "reg_token", "pos_embed")
    )
    if first is None or registers is not None or positions is None:
        return False
    return positions.shape[1] == net.patch_embed.num_patches + 1
