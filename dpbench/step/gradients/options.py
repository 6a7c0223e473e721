"""Precision and memory format of an engine's passes, norms and sums."""

from typing import NamedTuple

import torch

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.precision import FLOAT32, Precision
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products


class ForwardOptions(NamedTuple):
    """How an engine runs the model.

    precision: that of the passes. channels_last: whether images have that memory format. Weights
    cannot have it: they are views of theta, in the order in which every rule writes its sum, so
    torch converts them in each convolution. products: those of norms and sums.
    """

    precision: Precision = FLOAT32
    channels_last: bool = False
    products: Products = FLOAT32_PRODUCTS

    def in_memory_format(self, batch: Batch) -> Batch:
        """The batch with images [B, C, H, W] in the configured memory format."""
        if not self.channels_last or batch.inputs.dim() != 4:
            return batch
        inputs = batch.inputs.contiguous(memory_format=torch.channels_last)
        return Batch(inputs, batch.targets, batch.groups)
