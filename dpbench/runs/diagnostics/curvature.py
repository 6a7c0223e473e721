"""Gradient and Hessian of the mean loss over some training examples, at the current parameters.

The Hessian is only multiplied with vectors, by differentiating the gradient, so memory stays that
of a few gradients. Everything here reads private data without accounting.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vjp, vmap

from dpbench.learning.data.dataset import Split
from dpbench.step.gradients import Engine


class MeanLoss:
    """L(theta) = 1/n sum_i loss_i(theta) over the examples of a split at `indices` [n] int64.

    chunk: examples per pass, which bounds memory. Without examples all results are NaN.
    """

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
        """H v [V, D] for each row v of `vectors` [V, D], with H the Hessian of L.

        All vectors at once, which share the loss and its gradient; memory grows with V * chunk.
        """
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
