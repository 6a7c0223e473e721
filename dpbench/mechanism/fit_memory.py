"""Fits the physical batches of a private step to the free memory."""

import math

import torch

from dpbench.data.dataset import Batch
from dpbench.mechanism.method import ReleasedState
from dpbench.mechanism.physical_batches import PhysicalBatches
from dpbench.mechanism.step import PrivateStep
from dpbench.models.modes import in_mode
from dpbench.seeds import torch_state_kept
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
    # As in the second step: the first may need less memory, as some methods read earlier releases.
    last = torch.ones_like(theta)
    update = step.method.update.advance(last, 1.0, theta.detach())
    released = ReleasedState(1, step.steps, last, step.seed, update)

    def attempt(size: int) -> None:
        part = batch.each(lambda t: t[:size])
        step.clipped_sum(step.method.gradient(step.engine, part, step.clip, released), part)

    with torch_state_kept(theta.device), in_mode(step.engine.model, training=True):
        step.physical = PhysicalBatches(
            largest_fitting_size(attempt, most, theta.device), adaptive=True
        )
