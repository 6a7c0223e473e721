"""Whether an engine agrees with the reference on synthetic examples."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.modes import in_mode
from dpbench.step.gradients.coupling import crowd, perturbation
from dpbench.step.gradients.engine import Engine, Gradients, MaterialisedGradients, PerExampleShift
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import at
from dpbench.step.gradients.replay import OtherDraws, Recorded, Repeated
from dpbench.system.memory import is_out_of_memory
from dpbench.system.seeds import torch_state_kept

FLOAT64, FLOAT32 = 1e-8, 1e-3
"""The largest errors, relative to a gradient's norm, that rounding explains: of a model that
computes in float64, and of one that torch can only vectorise in float32, or that computes in it."""

NORMS = 1e-6
"""The largest relative error of norms in float64, which are rounded up."""

STEP_LENGTH = 0.1
"""Length of the step along each gradient, for per-example shifts."""


def disagreement(engine: Engine, reference: Loop, probe: Batch) -> float | None:
    """The largest relative error of a gradient, if it is more than rounding explains; infinite if a
    gradient is not finite.

    Copies in float64 are compared, where torch can vectorise them, at the initial parameters and,
    since some start at zero, at a perturbation of them; there also in training mode, with the same
    random numbers, and, for engines that have rules, with per-example shifts and in a crowd.
    """
    try:
        error, rounds = _compared(_in_float64(engine, reference), reference, _doubled(probe))
        tolerance = FLOAT32 if rounds else FLOAT64
    except RuntimeError as failure:
        if is_out_of_memory(failure):
            raise
        (error, _), tolerance = _compared(engine, reference, probe), FLOAT32
    return error if error > tolerance else None


def _in_float64(engine: Engine, reference: Loop) -> Engine:
    """The same engine on the reference's copy of the model."""
    kind: Any = type(engine)
    return kind(reference.model64, reference.loss, reference.parameters64, reference.views)


def _doubled(probe: Batch) -> Batch:
    floating = probe.inputs.is_floating_point()
    return replace(probe, inputs=probe.inputs.double()) if floating else probe


def _compared(engine: Engine, reference: Loop, probe: Batch) -> tuple[float, bool]:
    """The largest error, and whether the model itself rounds to less than float64."""
    ruled = engine.name == "ghost"
    with _mode(engine, reference, training=False):
        with Recorded() as seen:
            errors = [_worst(engine, reference, probe, shifts=False)]
        theta = reference.parameters.theta
        with at(theta.data + perturbation(reference.parameters), theta):
            errors.append(_worst(engine, reference, probe, shifts=ruled))
            if ruled:
                errors.append(_of_crowd(engine, reference, crowd(probe), len(probe)))
            with _mode(engine, reference, training=True):
                errors.append(_in_training(engine, reference, probe))
    return max(errors), seen.rounds


@contextmanager
def _mode(engine: Engine, reference: Loop, training: bool) -> Iterator[None]:
    with in_mode(engine.model, training), in_mode(reference.model, training):
        yield


def _gradients(engine: Engine, reference: Loop, batch: Batch) -> Gradients:
    engine.parameters.theta.data.copy_(reference.parameters.theta.detach())
    return engine(batch)


def _worst(engine: Engine, reference: Loop, probe: Batch, shifts: bool) -> float:
    gradients = _gradients(engine, reference, probe)
    norms, rows = gradients.norms, [gradients.stack()]
    scales = STEP_LENGTH / (norms + 1e-6)
    if shifts:
        rows.append(engine(probe, PerExampleShift(gradients, scales)).stack())
    errors = [0.0]
    for i, part in enumerate(probe.split(1)):  # one by one, as they may be large
        expected = reference(part)
        errors += [_error(rows[0][i], expected), _error_of_norm(norms[i], expected)]
        if shifts:
            ahead = PerExampleShift(expected, scales[i : i + 1])
            errors.append(_error(rows[1][i], reference(part, ahead)))
    return max(errors)


def _of_crowd(engine: Engine, reference: Loop, many: Batch, size: int) -> float:
    """The error of a crowd's norms and of a sum of its gradients, beside those of parts of it."""
    order = torch.randperm(len(many), generator=torch.Generator().manual_seed(0))
    shuffled = many.each(lambda t: t[order.to(t.device)])
    together = _gradients(engine, reference, shuffled)
    parts = [_gradients(engine, reference, part) for part in shuffled.split(size)]
    factors = torch.linspace(0.5, 1, len(many)).to(together.norms)
    sums = [part.weighted_sum(own) for part, own in zip(parts, factors.split(size), strict=True)]
    return max(
        _relative(together.norms, torch.cat([part.norms for part in parts])),
        _relative(together.weighted_sum(factors), torch.stack(sums).sum(0)),
    )


def _in_training(engine: Engine, reference: Loop, probe: Batch) -> float:
    """The error in training mode, with the same random numbers, if they can be given again."""
    for _ in range(2):  # before the first pass, the engine takes one of few examples
        with torch_state_kept(probe.targets.device), Recorded() as draws:
            rows = _gradients(engine, reference, probe).stack()
    vectorised = draws.values and engine.name == "vmap"  # draws them in another way
    if vectorised or not draws.known:
        return 0.0
    errors = [0.0]
    with suppress(OtherDraws):
        for i, part in enumerate(probe.split(1)):
            with torch_state_kept(probe.targets.device), Repeated(draws.values, i):
                expected = reference(part)
            errors.append(_error(rows[i], expected))
    return max(errors)


def _error(ours: Tensor, expected: MaterialisedGradients) -> float:
    """The relative error of one gradient [D]; 0 if the reference is not finite."""
    row = expected.stack()[0]
    return _relative(ours, row) if row.isfinite().all() else 0.0


def _error_of_norm(ours: Tensor, expected: MaterialisedGradients) -> float:
    """That of its norm, which is rounded up, in multiples of what is tolerated for gradients."""
    norm = torch.linalg.vector_norm(expected.stack()[0])
    if not norm.isfinite():
        return 0.0
    return _relative(ours, norm) * (FLOAT64 / NORMS if ours.dtype is torch.float64 else 1)


def _relative(ours: Tensor, expected: Tensor) -> float:
    difference = torch.linalg.vector_norm(ours - expected)
    error = float(difference / (torch.linalg.vector_norm(expected) + 1e-6))
    return error if math.isfinite(error) else math.inf
