"""Checks of what is released without noise: buffers, initial parameters, a step that is skipped."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.audit.code.audited import Audited, AuditedTraining, flat
from dpbench.audit.code.task import NOTHING, AuditBatch, Finding, refuted, skipped
from dpbench.system.errors import UserError


def buffers(code: Audited) -> Finding:
    """A model's buffers, which have no noise, are the same after other examples."""
    made, bound = code.examples, code.claim.bound
    first, second = (
        _buffers(code.model_after(batch)) for batch in (made.usual(bound), made.tiny(bound))
    )
    if len(first) == len(second) and all(map(torch.equal, first, second)):
        return NOTHING
    return refuted(
        "Buffers of the model depend on the examples and have no noise: running statistics of "
        "batches, as batch normalisation keeps them, are released with the model."
    )


def _buffers(model: Any) -> list[Tensor]:
    return [*map(flat, model.buffers())] if isinstance(model, nn.Module) else []


def initial_parameters(code: AuditedTraining) -> Finding:
    """A training starts from the same parameters on other examples."""
    made, bound = code.examples, code.claim.bound
    first, second = (code.initial(batch) for batch in (made.usual(bound), made.tiny(bound)))
    if len(first) == len(second) and first.equal(second):
        return NOTHING
    return refuted("The initial parameters depend on the examples, and have no noise.")


def skipped_steps(code: Audited) -> Finding:
    """A step is taken whatever an example is, also one whose loss is no number."""
    usual = code.examples.usual(code.claim.bound)
    if not usual.inputs.is_floating_point():
        return NOTHING
    for value in (math.nan, math.inf):
        strange = usual.inputs.clone()
        strange[0] = value
        try:
            moved = code.sums(AuditBatch(strange, usual.targets))[0]
        except UserError:
            return skipped(f"The code refuses an example of {value}.")
        if not moved.any():
            return refuted(
                f"A batch with an example of {value} leaves all parameters as they were: a step "
                "that is skipped without noise tells that this example is there."
            )
    return NOTHING
