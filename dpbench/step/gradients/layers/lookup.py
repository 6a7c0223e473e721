"""Embedding layers: look-ups in a table of rows."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dpbench.step.gradients.engine import Weights
from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.norms import Known, Term, rounding_of_sum
from dpbench.step.gradients.position_norms import squared_norms_of_table


class Lookup(LayerGradient):
    """The gradient of a table whose rows were looked up: indices [B, T] int64, b [B, T, O].

    Two positions interact in the norm if and only if they looked up the same row.
    """

    def __init__(self, indices: Tensor, b: Tensor, rows: int):
        self.indices, self.b, self.rows = indices, b, rows

    def squared_norm(self) -> Term:
        return Known(squared_norms_of_table(self.indices, self.b))

    def write_sum(self, weights: Weights, out: Tensor) -> None:
        scaled = weights.scaled(self.b).flatten(0, 1)
        table = out.zero_().view(self.rows, -1)
        table.index_add_(0, self.indices.flatten(), scaled)

    def dot(self, vector: Tensor) -> Tensor:
        return (vector.view(self.rows, -1)[self.indices] * self.b).sum((1, 2))

    def rounding(self) -> Tensor:
        size = torch.linalg.vector_norm(self.b, dim=2, dtype=torch.float64).sum(1)
        return rounding_of_sum(self.b.shape[1], self.b) * size

    def double(self) -> "Lookup":
        return Lookup(self.indices, self.b.double(), self.rows)

    def stack(self) -> Tensor:
        examples, _, width = self.b.shape
        table = self.b.new_zeros(examples, self.rows, width)
        index = self.indices.unsqueeze(2).expand_as(self.b)
        return table.scatter_add_(1, index, self.b).flatten(1)


def perturbed_embedding(perturbation: Perturbation, x: Tensor) -> Tensor:
    """An embedding's outputs for x [B K, ...], with W_i = W + scales_i G_i for each example."""
    (table,), scales = perturbation.gradients, perturbation.scales
    indices = x.reshape(len(scales), -1)
    same = (indices.unsqueeze(2) == table.indices.unsqueeze(1)).to(table.b)
    plain = F.embedding(x, perturbation.shared()["weight"])
    return plain + (same @ (table.b * scales.view(-1, 1, 1))).view_as(plain)


def embedding(call: ModuleCall) -> list[Lookup]:
    """An embedding; the padding row has no gradient."""
    indices = call.a.reshape(call.examples, -1)
    b = call.b.reshape(call.examples, -1, call.b.shape[-1])
    if call.module.padding_idx is not None:
        b = b.masked_fill((indices == call.module.padding_idx).unsqueeze(2), 0)
    return [Lookup(indices, b, call.module.num_embeddings)]
