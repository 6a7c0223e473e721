"""Models made by other libraries: what to say if they are missing, and what to train."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpbench.errors import Unavailable, UserError


def planning() -> bool:
    """Whether a model is only planned (on the `meta` device), so that it needs no weights."""
    return torch.empty(0).is_meta


@contextmanager
def weights_of(name: str) -> Iterator[None]:
    """Weights are loaded within; Unavailable if they are not available.

    UserError if they are of other sizes.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"needs pre-trained weights: those of {name} are neither in the Hugging Face cache "
            "($HF_HOME) nor to be downloaded now; run once with network, set model.weights to "
            "those of a machine that has them, or set model.pretrained=false for random weights."
        ) from error
    except RuntimeError as error:
        raise UserError(
            f"there are no weights of {name} for a model of these sizes: set the sizes they were "
            "made for, or model.pretrained=false for random weights."
        ) from error


def attention(device: torch.device) -> AbstractContextManager:
    """Attention as fast as torch has it on a GPU, and plain elsewhere.

    The fused kernel of the CPU has neither a vectorised gradient nor a second derivative.
    """
    return nullcontext() if device.type == "cuda" else sdpa_kernel(SDPBackend.MATH)


def train_only(model: nn.Module, parts: Iterable[nn.Module]) -> None:
    """Freeze all parameters of a model but those of some of its parts."""
    model.requires_grad_(False)
    for part in parts:
        part.requires_grad_(True)
