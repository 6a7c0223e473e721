"""The precision of a model's passes. Norms, clipping, sums and noise are float32; see `products`.

No guarantee depends on it: norms and sums are computed from the same tensors of a pass.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

P = ParamSpec("P")
R = TypeVar("R")

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
        return tf32_products() if self.name == "tf32" else nullcontext()


FLOAT32 = Precision("float32")


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32 if it is half precision; indices and float64 are returned unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def full_precision_products() -> AbstractContextManager:
    """The context of everything else: float32 products in full precision, including convolutions on
    a GPU, which torch computes in TF32 by default; also within somebody's autocast, in which norms
    would be in half precision."""
    # Within a run it is so already, and setting it again takes longer than looking.
    casts = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    plain = not casts and _precision() == ("highest", False)
    return nullcontext() if plain else _products(tf32=False)


def tf32_products() -> AbstractContextManager:
    """The context in which a GPU's products may be rounded to TF32."""
    return _products(tf32=True)


def in_full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose calls are within `full_precision_products`."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        with full_precision_products():
            return function(*args, **kwargs)

    return guarded


def check_defaults() -> None:
    """UserError unless torch makes float32 numbers on the CPU and follows gradients: a notebook may
    have set otherwise, or somebody's model. To be called within `full_precision_products`."""
    changed = {
        "torch.set_default_dtype(torch.float32)": torch.get_default_dtype() != torch.float32,
        'torch.set_default_device("cpu")': torch.get_default_device().type != "cpu",
        "torch.set_grad_enabled(True)": not torch.is_grad_enabled(),
        'torch.set_autocast_enabled("cpu", False)': torch.is_autocast_enabled("cpu"),
        'torch.set_autocast_enabled("cuda", False)': torch.is_autocast_enabled("cuda"),
    }
    if calls := [call for call, needed in changed.items() if needed]:
        raise UserError(
            "a run needs torch's own defaults, and the model or something before the run has "
            f"changed them: call {' and '.join(calls)} there."
        )


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    matmul, convolution = _precision()
    _set_precision("high" if tf32 else "highest", tf32)
    try:
        with ExitStack() as plain:
            for kind in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
                plain.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        _set_precision(matmul, convolution)


def _precision() -> tuple[str, bool]:
    """That of matrix products on all devices, and whether a GPU's convolutions may be in TF32."""
    # The older of torch's two interfaces: torch.compile reads it, and reading it raises once the
    # newer one was used.
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError as error:
        raise UserError(
            "the precision of float32 products was set by torch's `fp32_precision`, beside which "
            "it cannot be known: call torch.set_float32_matmul_precision, and set "
            "torch.backends.cudnn.allow_tf32, instead."
        ) from error


def _set_precision(matmul: str, convolution: bool) -> None:
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolution
