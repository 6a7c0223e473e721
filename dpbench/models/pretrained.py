"""Models from other libraries: their weights, their attention, and the parts to train."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpbench.system.errors import Unavailable, UserError


def planning() -> bool:
    """Whether a model is only built for planning, on the `meta` device, and needs no weights."""
    return torch.empty(0).is_meta


@contextmanager
def loading_weights(name: str) -> Iterator[None]:
    """The context in which weights are loaded; raises Unavailable if they cannot be found.

    Raises UserError if they are for a model of other sizes.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"needs pre-trained weights: those of {name} are not in the Hugging Face cache "
            "($HF_HOME) and cannot be downloaded now; run once with network access, set "
            "model.weights to a local copy, or set model.pretrained=false for random weights."
        ) from error
    except RuntimeError as error:
        raise UserError(
            f"the weights of {name} do not fit a model of these sizes: set the sizes that they are "
            "for, or model.pretrained=false for random weights."
        ) from error


def attention(device: torch.device) -> AbstractContextManager:
    """The context that selects attention kernels: torch's choice on a GPU, unfused elsewhere.

    The fused CPU kernel has neither a vectorised gradient nor a second derivative.
    """
    return nullcontext() if device.type == "cuda" else sdpa_kernel(SDPBackend.MATH)


def train_biases(model: nn.Module, head: nn.Module) -> None:
    """Freeze all parameters of a model except its biases and those of its head (Bu et al. 2024,
    "Differentially private bias-term fine-tuning of foundation models")."""
    train_only(model, [head])
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] == "bias":
            parameter.requires_grad_(True)


def train_only(model: nn.Module, parts: Iterable[nn.Module]) -> None:
    """Freeze all parameters of a model except those of `parts`."""
    model.requires_grad_(False)
    for part in parts:
        part.requires_grad_(True)
