"""What examples add to moments of their features: sums that a linear model follows from."""

import math

import torch
from torch import Tensor

from dpbench.gradients.engine import Gradients


class Moments(Gradients):
    """s_i [S] = (c z_i z_i^T, y_i z_i^T), for features z_i [d] and a class y_i, one-hot [K].

    For a unit of several rows v it is their mean with weights `shares`. z [B, V, d], classes [B, V]
    int64, shares [B, V], losses [B]. second: c; 0 leaves the first part out. That part has the
    upper triangle of the matrix, with all but the diagonal times sqrt(2): its norm is that of the
    matrix, and S = d (d + 1)/2 + K d. All is one layer.
    """

    def __init__(
        self,
        losses: Tensor,
        z: Tensor,
        classes: Tensor,
        number: int,
        shares: Tensor,
        second: float,
    ):
        self.losses, self._z, self._classes, self._shares = losses, z, classes, shares
        self._number, self._second = number, second

    @property
    def norms(self) -> Tensor:
        """|s_i|^2 = sum_vw a_v a_w (c^2 <z_v, z_w>^2 + [y_v = y_w] <z_v, z_w>), in float64."""
        z, shares = self._z.double(), self._shares.double()
        products = z @ z.mT
        same = self._classes.unsqueeze(2) == self._classes.unsqueeze(1)
        terms = self._second**2 * products.square() + torch.where(same, products, 0 * products)
        squared = torch.einsum("bv,bw,bvw->b", shares, shares, terms)
        return squared.clamp(min=0).sqrt().to(self.losses)

    @property
    def layer_norms(self) -> Tensor:
        return self.norms.unsqueeze(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        z = self._z.masked_fill((factors == 0).view(-1, 1, 1), 0).flatten(0, 1)
        weights = (self._shares * factors.view(-1, 1)).flatten().unsqueeze(1)
        classes = torch.arange(self._number, device=z.device)
        one_hot = (self._classes.flatten().unsqueeze(1) == classes).to(z)
        first = (one_hot * weights).T @ z
        if not self._second:
            return first.flatten()
        return torch.cat([packed(self._second * ((z * weights).T @ z)), first.flatten()])

    def dot(self, vector: Tensor) -> Tensor:
        return self.stack() @ vector

    @property
    def rounding(self) -> Tensor:
        return 1e-6 * self.layer_norms.double()

    def double(self) -> "Moments":
        parts = self.losses, self._z.double(), self._classes
        return Moments(*parts, self._number, self._shares.double(), self._second)

    def stack(self) -> Tensor:
        examples = len(self.losses)
        each = torch.eye(examples, dtype=self.losses.dtype, device=self.losses.device)
        size = len(self.weighted_sum(self.losses))
        rows = (self.weighted_sum(row) for row in each)
        return torch.cat([self.losses.new_zeros(0), *rows]).view(examples, size)


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix [d, d], with the same norm [d (d + 1)/2]."""
    rows, columns = torch.triu_indices(*matrix.shape, device=matrix.device)
    return matrix[rows, columns] * _weights(rows, columns, matrix)


def unpacked(triangle: Tensor) -> Tensor:
    """The inverse of `packed`."""
    d = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    rows, columns = torch.triu_indices(d, d, device=triangle.device)
    values = triangle / _weights(rows, columns, triangle)
    matrix = triangle.new_zeros(d, d)
    matrix[rows, columns] = matrix[columns, rows] = values
    return matrix


def _weights(rows: Tensor, columns: Tensor, like: Tensor) -> Tensor:
    """1 on the diagonal, and sqrt(2) elsewhere."""
    return like.new_full((len(rows),), math.sqrt(2)).masked_fill(rows == columns, 1)
