"""Whether an engine agrees with the reference on synthetic examples."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dpbench.data.dataset import Batch
from dpbench.gradients.coupling import perturbation
from dpbench.gradients.engine import Engine, MaterialisedGradients, PerExampleShift
from dpbench.gradients.loop import Loop
from dpbench.models.modes import in_mode

TOLERANCE = 1e-3
"""The largest error, relative to a gradient's norm, that float32 rounding explains."""

STEP_LENGTH = 0.1
"""Length of the step along each gradient, for per-example shifts."""


def disagreement(engine: Engine, reference: Loop, probe: Batch) -> float:
    """The largest relative error of a gradient; infinite if one is not finite.

    Gradients are compared at the initial parameters and, since some start at zero, at a
    perturbation of them; there also with per-example shifts, if the engine has rules for them. The
    model is in evaluation mode, since dropout would make correct engines differ.
    """
    shifts = engine.name == "ghost"
    with in_mode(engine.model, training=False):
        at_start = _worst(engine, reference, probe, shifts=False)
        with _perturbed(engine, perturbation(engine.parameters)):
            return max(at_start, _worst(engine, reference, probe, shifts))


def _worst(engine: Engine, reference: Loop, probe: Batch, shifts: bool) -> float:
    gradients = engine(probe)
    scales = STEP_LENGTH / (gradients.norms + 1e-6)
    ours = [gradients.stack()]
    if shifts:
        ours.append(engine(probe, PerExampleShift(gradients, scales)).stack())
    errors = [0.0]
    for i, part in enumerate(probe.split(1)):  # one by one, as they may be large
        expected = reference(part)
        errors.append(_error(ours[0][i], expected))
        if shifts:
            errors.append(
                _error(ours[1][i], reference(part, PerExampleShift(expected, scales[i : i + 1])))
            )
    return max(errors)


def _error(ours: Tensor, expected: MaterialisedGradients) -> float:
    """The relative error of one gradient [D]; 0 if the reference is not finite."""
    row = expected.stack()[0]
    if not row.isfinite().all():
        return 0.0
    error = float(torch.linalg.vector_norm(ours - row) / (torch.linalg.vector_norm(row) + 1e-6))
    return error if math.isfinite(error) else math.inf


@contextmanager
def _perturbed(engine: Engine, shift: Tensor) -> Iterator[None]:
    """Shift theta within the context, and restore it bit for bit afterwards."""
    theta = engine.parameters.theta.data
    before = theta.clone()
    try:
        theta.add_(shift)
        yield
    finally:
        theta.copy_(before)
