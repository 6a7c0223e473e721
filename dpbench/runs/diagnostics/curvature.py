"""Gradient and Hessian of the mean loss over some training examples, at the current parameters, and
the trace and the largest eigenvalue of a symmetric matrix from its products with vectors.

The Hessian is only multiplied with vectors, by differentiating the gradient, so memory stays that
of a few gradients.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vjp, vmap

from dpbench.learning.data.examples import Split
from dpbench.step.gradients import Engine


class MeanLoss:
    """L(theta) = 1/n sum_i loss_i(theta) over the examples of a split at `indices` [n] int64.
    chunk: examples per pass, which bounds memory. Without examples all results are NaN."""

    def __init__(self, engine: Engine, split: Split, indices: Tensor, chunk: int):
        self._engine, self._split = engine, split
        self._parts = indices.split(chunk) if len(indices) else ()
        self._examples = len(indices)

    def __len__(self) -> int:
        return self._examples

    def gradient(self) -> Tensor:
        """dL/dtheta [D]."""
        theta = self._theta()
        return self._mean(lambda inputs, targets: self._gradient_at(inputs, targets)(theta), theta)

    def products(self, vectors: Tensor) -> Tensor:
        """H v [V, D] for each row v of `vectors` [V, D], with H the Hessian of L. All vectors at
        once, which share the loss and its gradient; memory grows with V * chunk."""
        theta = self._theta()
        vectors = vectors.to(theta)

        def of_part(inputs: Tensor, targets: Tensor) -> Tensor:
            # H is symmetric, so that the adjoint of the gradient is the Hessian itself.
            adjoint = vjp(self._gradient_at(inputs, targets), theta)[1]
            return vmap(lambda v: adjoint(v)[0])(vectors)

        return self._mean(of_part, vectors)

    def _theta(self) -> Tensor:
        return self._engine.parameters.theta.detach()

    def _gradient_at(self, inputs: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
        """Maps theta to the gradient [D] of the summed loss of a part."""
        engine = self._engine

        def loss(theta: Tensor) -> Tensor:
            named = engine.parameters.unflatten(theta)
            return engine.loss(functional_call(engine.model, named, (inputs,)), targets).sum()

        return grad(loss)

    def _mean(self, of_part: Callable[[Tensor, Tensor], Tensor], like: Tensor) -> Tensor:
        if not self._examples:
            return torch.full_like(like, torch.nan)
        total = torch.zeros_like(like)
        for part in self._parts:
            batch = self._split.at(part)
            total += of_part(batch.inputs, batch.targets)
        return total / self._examples


Products = Callable[[Tensor], Tensor]
"""Maps vectors [V, D] to the matrix times each of them [V, D]."""

BLOCK = 10
"""The number of vectors of the trace estimate that are multiplied at once."""


def trace(products: Products, size: int, count: int, draw: torch.Generator) -> float:
    """Hutchinson's unbiased estimate of the trace of a [size, size] matrix: the mean of z^T H z
    over `count` vectors z with independent entries of -1 or 1. Its variance is 2/count times the
    sum of the squared entries off the diagonal (Hutchinson 1990; Esipova et al. 2023, appendix
    B.3)."""
    total = 0.0
    for start in range(0, count, BLOCK):
        rows = min(BLOCK, count - start)
        bits = torch.randint(2, (rows, size), generator=draw, device=draw.device)
        z = (2 * bits - 1).float()
        total += (z * products(z)).sum(dtype=torch.float64).item()
    return total / count


def largest_eigenvalue(
    products: Products, start: Tensor, iterations: int = 50, tolerance: float = 1e-3
) -> float:
    """The largest eigenvalue, sign included, by Lanczos iteration from a vector [D].

    Stops when the residual |H u - lambda u| is at most `tolerance` * |lambda|, which bounds the
    distance to an eigenvalue, or after `iterations` products. The result is never above the largest
    eigenvalue, up to rounding. The basis is fully stored and reorthogonalised, so memory is
    iterations * D numbers. NaN if a product is not finite.
    """
    v = start / torch.linalg.vector_norm(start)
    basis = v.new_zeros(0, len(v))
    diagonal: list[Tensor] = []
    off_diagonal: list[Tensor] = []
    value = float("nan")
    for _ in range(iterations):
        basis = torch.cat([basis, v.unsqueeze(0)])
        w = products(v.unsqueeze(0))[0]
        diagonal.append(v @ w)
        if not torch.isfinite(diagonal[-1]):
            return float("nan")
        for _ in range(2):  # once leaves rounding errors that grow into spurious eigenvalues
            w = w - basis.T @ (basis @ w)
        norm = torch.linalg.vector_norm(w)
        value, last = _largest_of_tridiagonal(diagonal, off_diagonal)
        if norm.item() * abs(last) <= tolerance * abs(value):
            break
        off_diagonal.append(norm)
        v = w / norm
    return value


def _largest_of_tridiagonal(
    diagonal: list[Tensor], off_diagonal: list[Tensor]
) -> tuple[float, float]:
    """Largest eigenvalue of a tridiagonal matrix, and the last entry of its eigenvector."""
    matrix = torch.diag(torch.stack(diagonal)).double()
    if off_diagonal:
        edge = torch.stack(off_diagonal).double()
        matrix = matrix + torch.diag(edge, 1) + torch.diag(edge, -1)
    values, vectors = torch.linalg.eigh(matrix)
    return values[-1].item(), vectors[-1, -1].item()
