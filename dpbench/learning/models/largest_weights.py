"""Fine-tuning of the largest weights of a network alone."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Sparse(nn.Module):
    """A frozen linear map or convolution, but for the weights at some places, which are trained.

    places: int64 [k], places in the flattened weight of `base`. What is trained is a vector of
    these k weights, so that norms, clip and noise have k coordinates.
    """

    places: Tensor

    def __init__(self, base: Any, places: Tensor):
        super().__init__()
        self.base = base
        self.register_buffer("places", places)
        self.largest = nn.Parameter(base.weight.detach().flatten()[places])

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.base.weight
        flat = weight.flatten().scatter(0, self.places, self.largest)
        return functional_call(self.base, {"weight": flat.view_as(weight)}, (inputs,))


def train_largest(net: nn.Module, layers: dict[str, Any], share: float) -> None:
    """Replace layers of a network, by their names, by ones whose largest weights are trained.

    share: of all weights of these layers together, by magnitude; at least one. Luo et al. 2021,
    "Scalable differential privacy with sparse network finetuning". Magnitudes are those of the
    public weights, so the choice says nothing about the data.
    """
    sizes = torch.cat([layer.weight.detach().abs().flatten() for layer in layers.values()])
    count = max(1, int(share * len(sizes)))
    chosen = torch.zeros(len(sizes), dtype=torch.bool)
    chosen[sizes.topk(count).indices] = True
    parts = chosen.split([layer.weight.numel() for layer in layers.values()])
    for (path, layer), part in zip(layers.items(), parts, strict=True):
        if part.any():
            net.set_submodule(path, Sparse(layer, part.nonzero().flatten()))
