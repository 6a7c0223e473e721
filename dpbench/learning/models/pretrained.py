"""What models from other libraries share: their weights, planning without them, and attention."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpbench.learning.data.fetch.published_weights import PublishedWeights


def published_weights_of(model: Any) -> PublishedWeights:
    """The published weights that a model's settings name."""
    return PublishedWeights.of(vars(model), "model")


def planning() -> bool:
    """Whether a model is only built for planning, on the `meta` device, and needs no weights."""
    return torch.empty(0).is_meta


def attention(device: torch.device) -> AbstractContextManager:
    """The context that selects attention kernels: torch's choice on a GPU, unfused elsewhere. The
    fused CPU kernel has neither a vectorised gradient nor a second derivative."""
    return nullcontext() if device.type == "cuda" else sdpa_kernel(SDPBackend.MATH)
