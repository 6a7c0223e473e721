"""The passes of a private step on synthetic examples, without a change of the run's state: whether
they work, and how many examples fit in memory."""

import math
from collections.abc import Callable

import torch

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.modes import in_mode
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.mechanism.gradient import PerExample
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.errors import UserError, first_line
from dpbench.system.memory import is_out_of_memory, largest_fitting_size
from dpbench.system.seeds import torch_state_kept


def dry_run(step: PrivateStep, work: Callable[[Callable[[Batch], None]], None]) -> None:
    """Call `work` with a function that takes the step's passes on a batch of synthetic examples."""
    theta = step.engine.parameters.theta
    # As in the second step: the first may need less memory, as some methods read earlier releases.
    last = torch.ones_like(theta)
    gradient = step.method.gradient.advance(theta.detach(), None)
    released = step.released._replace(steps_done=1, gradient=last)

    def passes(part: Batch) -> None:
        step.clipped_sum(gradient(step.engine, part, step.clip, released), part)

    with torch_state_kept(theta.device), in_mode(step.engine.model, training=True):
        work(passes)


def check_method(step: PrivateStep, probe: Batch) -> None:
    """UserError if torch cannot take the method's own passes with this model.

    The engine's are checked where it is made, but a method may vectorise, or differentiate twice,
    what the engine does not.
    """
    if isinstance(step.method.gradient, PerExample):
        return
    try:
        dry_run(step, lambda passes: passes(probe))
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        options: ForwardOptions = step.engine.options
        raise UserError(
            f"method={step.method.name} fails with this model at "
            f"precision={options.precision.name}: {first_line(error, type(error).__name__)}; use "
            "another model, precision or method."
        ) from error


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
