"""What models from other libraries share: planning without weights, and their attention."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def planning() -> bool:
    """Whether a model is only built for planning, on the `meta` device, and needs no weights."""
    return torch.empty(0).is_meta


def attention(device: torch.device) -> AbstractContextManager:
    """The context that selects attention kernels: torch's choice on a GPU, unfused elsewhere. The
    fused CPU kernel has neither a vectorised gradient nor a second derivative."""
    return nullcontext() if device.type == "cuda" else sdpa_kernel(SDPBackend.MATH)
