"""The products that norms and sums are made of: in float32, or of TF32 numbers added up in float32.

Operands are cut to the 11 bits of TF32 beforehand, so that what is multiplied is known to the bit
(docs/privacy/arithmetic.md).
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.step.gradients.norms import rounding_of_sum
from dpbench.step.gradients.precision import tf32_products
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

SUMS = ("float32", "tf32")

KEPT = -(2**13)
"""The bits of a float32 number that TF32 has, too."""


def check_sums(name: str) -> None:
    """UserError for the name of a format in which no sensitivity is known to hold."""
    if name == "bf16":
        raise UserError(
            "sums=bf16: there is no bound for sums that are rounded to bf16; use sums=tf32, which "
            "takes numbers of bf16 as they are."
        )
    one_of("sums", name, SUMS)


@dataclass(frozen=True)
class Products:
    """Products of a format. On a processor those of TF32 are computed in float32."""

    name: str = "float32"

    def __post_init__(self) -> None:
        check_sums(self.name)

    @property
    def short(self) -> bool:
        return self.name != "float32"

    @property
    def cut(self) -> float:
        """By how much of itself a number is cut, at most."""
        return 2.0**-10 if self.short else 0.0

    @property
    def roundings(self) -> int:
        """Those of float32 that one addition may cost. Tensor cores cut addends to the bits of the
        largest, and sums, too (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores")."""
        return 4 if self.short else 1

    def operand(self, x: Tensor) -> Tensor:
        """x cut towards 0, so that no number gets larger and one that is not finite stays so."""
        if not self.short or x.dtype != torch.float32:
            return x
        return (x.view(torch.int32) & KEPT).view(torch.float32)

    def taken(self, x: Tensor) -> AbstractContextManager:
        """The context of a product of operands where x is."""
        return tf32_products() if self.short and x.is_cuda else nullcontext()

    def rounding_of_sum(self, terms: int, like: Tensor) -> float:
        """`norms.rounding_of_sum`, where an operand is cut after factors are multiplied into it."""
        return rounding_of_sum(self.roundings * terms, like) + self.cut


FLOAT32_PRODUCTS = Products()
