"""Symmetry and positivity of a matrix that need not be symmetric (Definition 4.2, calibration)."""

from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 1e-10
"""Numbers up to this share of the matrix' Frobenius norm count as zero, in float64."""


@dataclass(frozen=True)
class Properties:
    """Measurements of a square matrix A, each relative to its Frobenius norm.

    asymmetry: the largest |A_ij - A_ji|; quadratic: the smallest x^T A x over unit vectors x, which
    is the smallest eigenvalue of (A + A^T)/2; eigenvalue: the smallest real part of an eigenvalue
    of A; imaginary: the largest imaginary part.
    """

    asymmetry: float
    quadratic: float
    eigenvalue: float
    imaginary: float


def properties(matrix: Tensor) -> Properties:
    """The properties of a matrix [m, m]; all zero for a zero matrix."""
    scale = matrix.norm().item() or 1.0
    eigenvalues = torch.linalg.eigvals(matrix)
    return Properties(
        (matrix - matrix.mT).abs().max().item() / scale,
        torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[0].item() / scale,
        eigenvalues.real.min().item() / scale,
        eigenvalues.imag.max().item() / scale,
    )
