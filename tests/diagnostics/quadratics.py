"""Quadratic losses of several groups, for which the second-order expansion of a step is exact."""

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from dpbench.diagnostics.excess_risk import Expansion


class Quadratic(NamedTuple):
    """Losses <gradient_k, v> + v^T hessian_k v / 2 of a move by v, and a step's two gradients."""

    gradients: Tensor  # [K, D]
    hessians: Tensor  # [K, D, D]
    plain: Tensor  # [D]
    clipped: Tensor  # [D]
    learning_rate: float

    def losses(self, direction: Tensor) -> Tensor:
        """Losses [K] after a step along a direction [D]."""
        v = -self.learning_rate * direction
        return self.gradients @ v + torch.einsum("i,kij,j->k", v, self.hessians, v) / 2

    def expansion(self) -> Expansion:
        norm = torch.linalg.vector_norm
        bend = [torch.einsum("i,kij,j->k", v, self.hessians, v) for v in (self.plain, self.clipped)]
        return Expansion(
            self.learning_rate,
            norm(self.plain),
            norm(self.clipped),
            norm(self.gradients, dim=1),
            self.gradients @ self.plain,
            self.gradients @ self.clipped,
            *bend,
        )


@st.composite
def quadratics(draw, convex: bool, groups: int = 2) -> Quadratic:
    """Any such losses; convex ones come with a learning rate up to 1/largest eigenvalue."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    size = draw(st.integers(1, 5))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    roots = normal(groups, size, size)
    hessians = roots @ roots.mT if convex else roots + roots.mT
    largest = torch.linalg.eigvalsh(hessians).max().item()
    share = draw(st.floats(0.01, 1))
    return Quadratic(
        normal(groups, size) * draw(st.floats(0.01, 10)),
        hessians,
        normal(size),
        normal(size) * draw(st.floats(0.01, 3)),
        share / largest if convex else share,
    )
