"""Checks that a model couples examples neither within a batch nor across passes.

Checked at the initial parameters, and in training mode at a perturbation of them, where parameters
that start at zero (such as a gate) are non-zero; on a few examples, and on a crowd of others like
them, which fills what has room for only some of a batch. All passes use the reference's copy of the
model.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.kept import forgotten
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import Parameters
from dpbench.system.errors import UserError
from dpbench.system.seeds import seed_torch, torch_state, torch_state_kept

COUPLED = (
    "the loss of one example depends on the other examples of its batch%s; make each loss depend "
    "on its example alone."
)
CHANGING = (
    "%s changes with every pass%s, and what it stores about the examples is not covered by "
    "epsilon; use a layer without running statistics (GroupNorm, LayerNorm), or make it a constant."
)
SPECTRAL = (
    "%s changes with every pass%s, since spectral normalisation improves its estimate of the "
    "weight's norm each time, so that an example's gradient depends on how many passes there were; "
    "use torch.nn.utils.parametrizations.weight_norm, or no parametrization."
)
REMEMBERED = (
    "two passes of the same examples with the same random numbers have different losses%s, as if "
    "the model remembered examples or had a random generator of its own; let its outputs depend "
    "only on inputs, parameters and torch's default generator."
)


def refuse_coupling(reference: Loop, probe: Batch) -> None:
    """UserError if an example's loss depends on others, or a pass changes the state of the model.

    probe: at least two different units.
    """
    parameters = reference.parameters64
    start = reference.parameters.theta.detach().double()
    with torch_state_kept(start.device), forgotten(reference.model64, reference.loss):
        parameters.theta.data.copy_(start)
        before = _checked_pass(reference, probe, training=False)
        parameters.theta.data.add_(perturbation(parameters))
        _checked_pass(reference, probe, training=True)
        parameters.theta.data.copy_(start)
        reference.model64.eval()
        if not _close(before.losses, _pass(reference, probe).losses, SAME_SHAPE):
            raise UserError(REMEMBERED % "")


def perturbation(parameters: Parameters) -> Tensor:
    """A random vector [D] of a tenth of each tensor's magnitude, plus 0.01 since some are zero."""
    draw, theta = torch.Generator().manual_seed(0), parameters.theta.detach()
    parts = []
    for place in parameters.places.values():
        scale = 0.1 * theta[place].square().mean().sqrt() + 0.01
        parts.append(torch.randn(len(theta[place]), generator=draw).to(theta) * scale)
    return torch.cat(parts)


class Pass(NamedTuple):
    """Inputs, the losses of units [B], and the state of torch's generator before and after."""

    inputs: Tensor
    losses: Tensor
    generator_before: Tensor
    generator_after: Tensor

    @property
    def random(self) -> bool:
        return not torch.equal(self.generator_before, self.generator_after)


CROWD = 16
"""Units in the larger batch. A model that mixes only batches larger than this is not found."""

SAME_SHAPE, OTHER_SHAPE = 1e-6, 1e-4
"""Tolerances for rounding between two passes, as a model may compute in float32 internally; passes
of equal shape round alike."""


def _checked_pass(reference: Loop, probe: Batch, training: bool) -> Pass:
    """A pass over the probe in that mode; UserError if it changes state, is not reproducible or
    couples examples."""
    mode = " in training mode" if training else ""
    model = reference.model64.train(training)
    state = _state(model)
    together = _pass(reference, probe)
    for name, value in _state(model).items():
        # A first pass may create a constant; what existed before must not change.
        if name in state and not _close(value, state[name], 0):
            kept_by = model.get_submodule(name.rpartition(".")[0])
            spectral = isinstance(kept_by, nn.utils.parametrizations._SpectralNorm)
            raise UserError((SPECTRAL if spectral else CHANGING) % (name, mode))
    if not _close(together.losses, _pass(reference, probe).losses, SAME_SHAPE):
        raise UserError(REMEMBERED % mode)
    many = crowd(probe)
    if _couples(reference, probe, together, parts_of=1) or _couples(
        reference, many, _pass(reference, many), parts_of=len(probe)
    ):
        raise UserError(COUPLED % mode)
    return together


def crowd(probe: Batch) -> Batch:
    """The probe's units, and others between them: each number of an input is that of one or of
    another, so that all differ."""
    copies = probe.each(lambda t: t[torch.arange(CROWD, device=t.device) % len(t)])
    inputs, draw = copies.inputs, torch.Generator().manual_seed(0)
    own = torch.rand(inputs.shape, generator=draw).to(inputs.device) < 0.5
    own[: len(probe)] = True
    return replace(copies, inputs=torch.where(own, inputs, inputs.roll(1, 0)))


def _couples(reference: Loop, batch: Batch, together: Pass, parts_of: int) -> bool:
    """Whether the losses of a batch's pass depend on more than each unit, or part of that size."""
    return _has_cross_gradient(together, len(batch)) or _depends_on_batch(
        reference, batch, together, parts_of
    )


def _pass(reference: Loop, batch: Batch) -> Pass:
    """One pass of the reference's copy of the model, always with the same seed."""
    device = reference.parameters64.theta.device
    seed_torch(0, device)
    before = torch_state(device)
    inputs, losses = reference.unit_losses(batch)
    return Pass(inputs, losses, before, torch_state(device))


def _state(model: nn.Module) -> dict[str, Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: value.detach().clone() for name, value in named}


def _has_cross_gradient(together: Pass, units: int) -> bool:
    """Whether the first loss has a non-zero gradient in the inputs of other units, however small.

    Valid for random models too: the gradient is for the random numbers of this pass.
    """
    if not together.inputs.requires_grad:
        return False
    (slope,) = torch.autograd.grad(
        together.losses[0], together.inputs, allow_unused=True, materialize_grads=True
    )
    others = slope[len(slope) // units :]
    return bool((others.nan_to_num(nan=0) != 0).any())


def _depends_on_batch(reference: Loop, batch: Batch, together: Pass, parts_of: int) -> bool:
    """Whether losses change with the rest of the batch, given the same random numbers.

    This also detects dependence without a gradient: integer inputs, and detached tensors. Passes of
    equal shape draw the same numbers unless their count depends on the examples; such passes are
    not compared. Parts draw other numbers than the whole batch, so that comparison is made only for
    models that draw none.
    """
    copies = _pass(reference, batch.each(lambda t: t[:1].expand_as(t).contiguous()))
    same_draws = torch.equal(copies.generator_after, together.generator_after)
    if same_draws and not _close(copies.losses[:1], together.losses[:1], SAME_SHAPE):
        return True
    parts = [_pass(reference, part) for part in batch.split(parts_of)]
    if together.random or any(part.random for part in parts):
        return False
    return not _close(torch.cat([part.losses for part in parts]), together.losses, OTHER_SHAPE)


def _close(x: Tensor, y: Tensor, tolerance: float) -> bool:
    """Whether tensors are equal up to rounding; NaN equals NaN."""
    if x.shape != y.shape or not x.is_floating_point():
        return torch.equal(x, y)
    return torch.allclose(x, y, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
