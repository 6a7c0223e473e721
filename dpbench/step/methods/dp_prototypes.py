"""The noisy mean of each class's features: one release."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.step.clipping import Abadi
from dpbench.step.mechanism import Method, checked
from dpbench.step.methods.closed_form import GUARANTEE, ClosedForm, HeadMoments, Scaling
from dpbench.system.validate import Positive

LEAST_SHARE = 1e-9


@checked
def dp_prototypes(bound: Positive, constant: Positive, sharpness: Positive) -> Method:
    """The class whose mean of clipped features is nearest (in the manner of Wahdany et al. 2024).

    bound: the norm to which features are clipped. constant: see `Scaling`; a noisy class size
    follows from its sum. sharpness: by which half squared distances are multiplied, to be logits.
    The sensitivity is that of sums and sizes together: |y z^T| = |z| <= r.
    """
    scaling = Scaling(bound, constant)
    update = Prototypes(scaling, sharpness)
    gradient = HeadMoments(scaling, 0.0)
    return Method(Prototypes.method, Abadi(scaling.length), GUARANTEE, gradient, update=update)


@dataclass(frozen=True)
class Prototypes(ClosedForm):
    """<m_k, x> - |m_k|^2/2 for the noisy means m_k, which is largest for the nearest one.

    The square that noise adds to |m_k|^2 on average is subtracted. A class whose noisy size is
    within the noise counts as having that size.
    """

    method = "dp_prototypes"

    def solution(self, moments: Tensor, deviation: float) -> Tensor:
        sums = moments.view(self.classes, -1)
        noise = deviation / self.scaling.constant
        sizes = (sums[:, -1:] / self.scaling.constant).clamp(min=max(noise, LEAST_SHARE))
        means = sums[:, :-1] / sizes
        squares = means.square().sum(1, keepdim=True)
        squares -= means.shape[1] * (deviation / sizes).square()
        return torch.cat([means, -squares.clamp(min=0) / (2 * self.scaling.constant)], 1)
