"""The precision of a model's passes. Norms, clipping, sums and noise are always float32.

No guarantee depends on it: an engine reduces a pass to float32 tensors, separate for each example
(rows of a stack, or each module's inputs a and output gradients b). Clipping only needs the norm to
be that of the vector that is summed, and both are computed from the same tensors in full float32.
Rounding in the passes changes that vector, but not the accuracy of its norm.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.system.validate import one_of

PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Precision:
    """float32; tf32, with 10-bit mantissas in products on GPUs that support it; or bf16, by
    autocast."""

    name: str

    def __post_init__(self) -> None:
        one_of("precision", self.name, PRECISIONS)

    def model(self, device: torch.device) -> AbstractContextManager:
        """The context of a model's forward and backward pass, within `full_precision_products`."""
        if self.name == "bf16":
            return torch.autocast(device.type, torch.bfloat16)
        return _products(tf32=True) if self.name == "tf32" else nullcontext()


FLOAT32 = Precision("float32")


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32 if it is half precision; indices and float64 are returned unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


@contextmanager
def full_precision_products() -> Iterator[None]:
    """The context of everything else: float32 products in full precision, including convolutions on
    a GPU, which torch computes in TF32 by default."""
    with _products(tf32=False):
        yield


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    # The older of torch's two interfaces: torch.compile reads it, and reading it raises once the
    # newer one was used.
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
