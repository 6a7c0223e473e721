"""Models from other libraries: their weights and their attention."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpbench.system.errors import Unavailable, UserError


def planning() -> bool:
    """Whether a model is only built for planning, on the `meta` device, and needs no weights."""
    return torch.empty(0).is_meta


@contextmanager
def loading_weights(name: str) -> Iterator[None]:
    """The context in which weights are loaded; raises Unavailable if they cannot be found.

    Raises UserError if they are for a model of other sizes, or damaged.
    """
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise Unavailable(
            f"needs pre-trained weights: those of {name} are not in the Hugging Face cache "
            "($HF_HOME) and cannot be downloaded now; run once with network access, set "
            "model.weights to a local copy, or set model.pretrained=false for random weights."
        ) from error
    except RuntimeError as error:
        which = str(error).strip(" .\n").rpartition("\n")[2].strip()
        raise UserError(
            f"the weights of {name} do not fit a model of these sizes ({which}): set the "
            "sizes that they are for, or model.pretrained=false for random weights."
        ) from error
    except Exception as error:  # each library has its own for a damaged file
        raise UserError(
            f"the weights of {name} are damaged, or none: get them again, or set "
            "model.pretrained=false for random weights."
        ) from error


def refuse_missing(missing: Collection[str], place: object, name: str) -> None:
    """UserError if tensors of a network are missing where its weights are."""
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"{place} has no weights for {name}: it lacks {min(missing)}{more}.")


def attention(device: torch.device) -> AbstractContextManager:
    """The context that selects attention kernels: torch's choice on a GPU, unfused elsewhere.

    The fused CPU kernel has neither a vectorised gradient nor a second derivative.
    """
    return nullcontext() if device.type == "cuda" else sdpa_kernel(SDPBackend.MATH)
