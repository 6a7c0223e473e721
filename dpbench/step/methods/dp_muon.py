"""DP-Muon: the momentum of private gradients, each matrix of it made nearly orthogonal."""

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import torch
from msgspec import Meta
from torch import Tensor, nn

from dpbench.privacy.guarantee import POST_PROCESSED_SUMS
from dpbench.step.clipping import Bounds, ClipName, Problem, make_clip
from dpbench.step.mechanism import Method, ReleasedState, Update, checked
from dpbench.step.mechanism.eager import eager_step
from dpbench.system.errors import UserError

COEFFICIENTS = 15 / 8, -10 / 8, 3 / 8
"""Of I, A and A^2 in p_2(A), the Taylor polynomial of A^(-1/2) at I of degree 2."""


@checked
def dp_muon(
    bound: Bounds,
    momentum: Annotated[float, Meta(ge=0, lt=1)],
    newton_schulz_steps: Annotated[int, Meta(ge=0, le=99)],
    clip: ClipName,
    style: str,
) -> Method:
    """`Muon` on the noisy means (Kim and Fan 2026, DP-Muon without its bias correction)."""
    update = Muon(momentum, newton_schulz_steps)
    return Method("dp_muon", make_clip(clip, style, bound), POST_PROCESSED_SUMS, update=update)


@dataclass(frozen=True)
class Muon(Update):
    """m <- momentum m + noisy mean, then the direction `orthogonal` of each matrix in m.

    Parameters of other dimensions than two have the direction m, and with 0 steps so have all.
    shapes: of the trained parameters, once known.
    """

    momentum: float
    steps: int
    shapes: tuple[torch.Size, ...] | None = None
    velocity: Tensor | None = field(default=None, compare=False, repr=False)

    def bind(self, problem: Problem) -> Self:
        if self.steps and not any(len(shape) == 2 for shape in problem.shapes):
            raise UserError(
                "the model trains no matrix, which dp_muon would make orthogonal: choose another "
                "method or model."
            )
        return replace(self, shapes=problem.shapes)

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        past = 0 if self.velocity is None else self.momentum * self.velocity
        return replace(self, velocity=past + noisy)

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        assert self.velocity is not None
        direction = self.velocity.clone()
        if self.steps:
            matrices = self._matrices(direction)
            for matrix, other in zip(matrices, orthogonal(matrices, self.steps), strict=True):
                matrix.copy_(other)
        return direction

    def _matrices(self, vector: Tensor) -> list[Tensor]:
        if self.shapes is None:
            raise UserError("dp_muon needs the shapes of the parameters: call bind.")
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = zip(vector.split(sizes), self.shapes, strict=True)
        return [part.view(shape) for part, shape in parts if len(shape) == 2]


def orthogonal(matrices: list[Tensor], steps: int) -> list[Tensor]:
    """What torch's Muon subtracts at the rate 1: Y_q sqrt(max(1, rows/columns)) for q steps.

    Y_0 = m/max(1, |m|_F) and Y <- p_2(Y Y^T) Y, in bfloat16, and of the transpose of high matrices.
    """
    parameters = [nn.Parameter(torch.zeros_like(matrix)) for matrix in matrices]
    for parameter, matrix in zip(parameters, matrices, strict=True):
        parameter.grad = matrix
    muon = torch.optim.Muon(
        parameters,
        lr=1.0,
        weight_decay=0.0,
        momentum=0.0,
        nesterov=False,
        ns_coefficients=COEFFICIENTS,
        eps=1.0,
        ns_steps=steps,
    )
    eager_step(muon)
    return [-parameter.detach() for parameter in parameters]
