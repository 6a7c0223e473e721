"""Fits the physical batches of a private step to the free memory."""

import math
from collections.abc import Callable

import torch

from dpbench.learning.data.dataset import Batch
from dpbench.step.mechanism.dry_run import dry_run
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.memory import largest_fitting_size


def fit_memory(step: PrivateStep, probe: Batch) -> None:
    """Makes physical batches adaptive, starting from the largest ones that fit in memory.

    Sizes are tried on copies of the probe's synthetic examples; the state of the run does not
    change. Raises UserError where memory cannot be measured, or one example does not fit.
    """
    # A batch is larger than this with a probability of about 1e-9.
    most = math.ceil(step.expected_batch_size + 6 * math.sqrt(step.expected_batch_size))
    copies = torch.arange(most, device=probe.targets.device) % len(probe)
    batch, theta = probe.each(lambda t: t[copies]), step.engine.parameters.theta

    def fit(passes: Callable[[Batch], None]) -> None:
        size = largest_fitting_size(
            lambda size: passes(batch.each(lambda t: t[:size])), most, theta.device
        )
        step.physical = PhysicalBatches(size, adaptive=True, lengths=step.physical.lengths)

    dry_run(step, fit)
