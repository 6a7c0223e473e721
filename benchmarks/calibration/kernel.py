"""The tangent kernel H = sum_r H_r of a network, with and without clipping.

Bu et al. (calibration), Equations 3.1, 4.3 and 4.4: with f the outputs, H = df/dw df/dw^T, and
along the flow dL/dt = -dL/df M dL/df^T, where M is H, HC or sum_r H_r C_r.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.runs.training.float64 import Network
from dpbench.step.clipping import Clip
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.gradients.parameters import Layer
from dpbench.step.gradients.vmap import Vmap


@dataclass(frozen=True)
class Tangents:
    """First derivatives df/dw [n, K, D] of the K outputs of n examples, at one theta."""

    jacobian: Tensor
    layers: tuple[Layer, ...]

    def kernel(self, factors: Tensor | None = None) -> Tensor:
        """sum_r H_r C_r [nK, nK] for factors [n, L], where C_r is diagonal; H without factors.

        All K outputs of an example share its factor. Factors [n, 1] apply to all layers: HC.
        """
        rows = self.jacobian.flatten(0, 1)
        if factors is None:
            return rows @ rows.mT
        lengths = torch.tensor([layer.at.stop - layer.at.start for layer in self.layers])
        by_layer = factors.expand(len(self.jacobian), len(self.layers))
        by_weight = by_layer.repeat_interleave(lengths, 1)  # [n, D]
        return rows @ (self.jacobian * by_weight.unsqueeze(1)).flatten(0, 1).mT


@dataclass(frozen=True)
class KernelClippedSum:
    """A clipped sum of gradients: the effective factors C [n, 1] or [n, L], and the sum [D]."""

    factors: Tensor
    total: Tensor


def clip_sum(clip: Clip, gradients: MaterialisedGradients, groups: Tensor) -> KernelClippedSum:
    """The clipped sum of gradients, without noise."""
    factors = clip.factors(clip.norms(gradients), groups)
    weighted = clip.reduce(gradients, factors)
    total = clip.finish(weighted)
    # Batch clipping scales the whole sum, hence every example by the same factor.
    scale = (total @ weighted) / (weighted @ weighted) if weighted.any() else 1.0
    return KernelClippedSum(factors.view(len(factors), -1) * scale, total)


def tangents_of(network: Network, batch: Batch) -> Tangents:
    """Derivatives at the current parameters; inputs in float64."""
    with torch.no_grad():
        n, count = network.model(batch.inputs).shape
    indices = torch.arange(count).repeat(n)
    rows = Batch(batch.inputs.repeat_interleave(count, 0), indices, torch.zeros_like(indices))
    output = Vmap(network.model, _one_output, network.parameters)
    return Tangents(output(rows).stack().view(n, count, -1), network.parameters.layers)


def _one_output(outputs: Tensor, indices: Tensor) -> Tensor:
    """The output [B] of each example at its index [B], in place of a loss."""
    return outputs.gather(1, indices.unsqueeze(1)).squeeze(1)
