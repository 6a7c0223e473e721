"""The precision of a model's passes. Norms, clipping, sums and noise are always float32.

Why no guarantee depends on it: an engine reduces a pass to float32 tensors, of each example alone
(rows of a stack, or what each module saw: inputs a and output gradients b). Clipping needs no more
than that the norm belongs to the very vector that is summed, and both are computed from the same
tensors in full float32. How those were rounded changes which vector that is, not how long it seems.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.validate import one_of

PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Precision:
    """float32; tf32, with products of 10 bits on GPUs that have them; or bf16, by autocast."""

    name: str

    def __post_init__(self) -> None:
        one_of("precision", self.name, PRECISIONS)

    def model(self, device: torch.device) -> AbstractContextManager:
        """Around a model's forward and backward pass alone, inside `full_precision_products`."""
        if self.name == "bf16":
            return torch.autocast(device.type, torch.bfloat16)
        return _products(tf32=True) if self.name == "tf32" else nullcontext()


FLOAT32 = Precision("float32")


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32 if it is half precision; indices and float64 are returned unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


@contextmanager
def full_precision_products() -> Iterator[None]:
    """Around everything else: float32 products keep all bits, also the convolutions of a GPU, which
    torch rounds to TF32 by default."""
    with _products(tf32=False):
        yield


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    # The older of torch's two interfaces: read after the newer one is used, it raises, and
    # torch.compile reads it.
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
