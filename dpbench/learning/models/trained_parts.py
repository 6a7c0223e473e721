"""The part of a pre-trained network that is trained: one setting for all libraries."""

from collections.abc import Iterable
from typing import Any, Protocol

from torch import Tensor, nn
from torch.func import functional_call

from dpbench.learning.models.lora import Adapted, Lora, adaptable
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

TRAIN = (
    *("head", "biases_and_head", "norms_and_head", "lora"),
    *("largest_and_head", "first_layer_and_head", "last_block_and_head", "all"),
)

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Layers whose parameters are a scale and a shift."""


class FineTuned(Protocol):
    """A model's settings of what is trained. share: of the weights of each linear map and
    convolution, the largest, for `largest_and_head`."""

    @property
    def train(self) -> str: ...

    @property
    def lora(self) -> Lora | None: ...

    @property
    def share(self) -> float: ...


def check_train(train: str, lora: Lora | None) -> None:
    """UserError for an unknown part, and for adapters without their settings."""
    if one_of("model.train", train, TRAIN) == "lora" and lora is None:
        raise UserError("model.train=lora needs model.lora: its rank, alpha and targets.")


def adapt(net: nn.Module, model: FineTuned, head: nn.Module) -> None:
    """Add adapters to a network, or divide its weights, if these are what is trained."""
    if model.train == "lora" and model.lora:
        model.lora.adapt(net, head)
    elif model.train == "largest_and_head":
        layers = {path: net.get_submodule(path) for path in adaptable(net, head)}
        train_largest(net, layers, model.share)


def train_part(
    net: nn.Module,
    train: str,
    head: nn.Module,
    first_layer: Iterable[nn.Parameter],
    last_block: Iterable[nn.Parameter],
) -> None:
    """Freeze all parameters of a network but those that `train`, one of TRAIN, names.

    first_layer: the parameters before the first block. last_block: its parameters, and those of
    what follows it. Sources: first layer, Cattan et al. 2022, "Fine-tuning with differential
    privacy necessitates an additional hyperparameter search"; biases, Bu et al. 2024,
    "Differentially private bias-term fine-tuning of foundation models"; normalisations, which are
    called FiLM there, Tobaben et al. 2023, "On the efficacy of differentially private few-shot
    image classification"; adapters, Yu et al. 2022, "Differentially private fine-tuning of language
    models"; largest weights, see `train_largest`.
    """
    net.requires_grad_(train == "all")
    named, modules = net.named_parameters(), [*net.modules()]
    norms = (m for m in modules if isinstance(m, NORMS))
    adapted = (m for m in modules if isinstance(m, Adapted))
    chosen: dict[str, Iterable[nn.Parameter]] = {
        "biases_and_head": (p for name, p in named if name.rpartition(".")[2] == "bias"),
        "norms_and_head": (p for m in norms for p in m.parameters(recurse=False)),
        "lora": (p for m in adapted for p in (m.lora_A.weight, m.lora_B.weight)),
        "largest_and_head": (m.largest for m in modules if isinstance(m, Sparse)),
        "first_layer_and_head": first_layer,
        "last_block_and_head": last_block,
    }
    for parameter in (*chosen.get(train, ()), *head.parameters()):
        parameter.requires_grad_(True)


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

    share: of each layer's weights, by magnitude; at least one. Luo et al. 2021, "Scalable
    differential privacy with sparse network finetuning". Magnitudes are those of the public
    weights, so the choice says nothing about the data.
    """
    # By layer, and not of all together: a run is planned without the weights, by their numbers.
    for path, layer in layers.items():
        sizes = layer.weight.detach().abs().flatten()
        places = sizes.topk(max(1, int(share * len(sizes)))).indices.sort().values
        net.set_submodule(path, Sparse(layer, places))
