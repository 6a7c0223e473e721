"""Least squares from noisy second moments of the features: one release."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.step.clipping import Abadi
from dpbench.step.mechanism import Method, checked
from dpbench.step.methods.closed_form import GUARANTEE, ClosedForm, HeadMoments, Scaling, unpacked
from dpbench.system.validate import Positive

LEAST_RIDGE = 1e-9


@checked
def dp_least_squares(
    bound: Positive,
    constant: Positive,
    second_weight: Positive,
    ridge: Positive,
    sharpness: Positive,
) -> Method:
    """The last layer by ridge regression of one-hot classes on its clipped inputs (in the manner of
    Mehta et al. 2023, "Differentially private image classification from features").

    bound: the norm to which features are clipped. second_weight: c of `Moments`, which moves noise
    from first to second moments as it becomes smaller. sharpness: by which outputs are multiplied.
    All moments have one sensitivity: |s|^2 <= c^2 r^4 + r^2 where |z| <= r.
    """
    scaling = Scaling(bound, constant)
    r = scaling.length
    clip = Abadi(math.hypot(second_weight * r**2, r))
    update = LeastSquares(scaling, sharpness, second_weight=second_weight, ridge=ridge)
    gradient = HeadMoments(scaling, second_weight)
    return Method(LeastSquares.method, clip, GUARANTEE, gradient, update=update)


@dataclass(frozen=True)
class LeastSquares(ClosedForm):
    """C (G + lambda I)^-1, from the noisy means C of y z^T and G of z z^T.

    G is made positive semi-definite, by setting negative eigenvalues to 0. ridge: lambda in
    multiples of the norm of G's noise, which is about sqrt(2 d) times its standard deviation on the
    diagonal.
    """

    method = "dp_least_squares"
    second_weight: float = 1.0
    ridge: float = 1.0

    def solution(self, moments: Tensor, deviation: float) -> Tensor:
        d = _features(len(moments), self.classes)
        first = moments[-self.classes * d :].view(self.classes, d)
        second = unpacked(moments[: -self.classes * d]) / self.second_weight
        values, vectors = torch.linalg.eigh(second)
        noise = math.sqrt(2 * d) * deviation / self.second_weight
        shrunk = values.clamp(min=0) + self.ridge * noise + LEAST_RIDGE
        return (first @ vectors / shrunk) @ vectors.T


def _features(size: int, classes: int) -> int:
    """d, from S = d (d + 1)/2 + K d."""
    b = 2 * classes + 1
    return (math.isqrt(b**2 + 8 * size) - b) // 2
