"""Checks of what no noise hides: buffers, initial parameters, skipped steps, and last bits."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.audit.code.audited import Audited, AuditedTraining, flat
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import NOTHING, AuditBatch, Finding, flagged, refuted, skipped
from dpbench.system.errors import UserError

RUNS, CANARIES = 24, 16
"""Runs of one step, in each of which so many coordinates have a sum of 1, and as many one of 0."""

NEAR = 0.25
"""Sums nearer to 0 than this, where 1 plus noise has fewer bits than noise alone."""

COARSER = 3
"""How many bits fewer are no chance."""


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


def bits(code: Audited) -> Finding:
    """Sums of 1 plus noise have as many bits as noise alone."""
    if not code.is_linear:
        return skipped("The model is not linear: only there are sums known to be exactly 1.")
    batch = one_hot(list(range(CANARIES)), LENGTH, 2 * CANARIES)
    runs = [code.sums(batch, bound=1.0, seed=seed)[0] for seed in range(RUNS)]
    noisy = torch.stack(runs).numpy()
    with_canary, without = _finest(noisy[:, :CANARIES]), _finest(noisy[:, CANARIES:])
    if with_canary - without < COARSER:
        return NOTHING
    return flagged(
        f"Near 0, a sum with an example has its last bit at 2^{with_canary}, and one without at "
        f"2^{without}: the bits of floating-point noise tell which it was (Mironov 2012). Draw "
        "noise in float64, and round the noisy sum to a grid."
    )


def _finest(values: np.ndarray) -> int:
    """The exponent of the finest last bit among values near 0."""
    near = values[(np.abs(values) < NEAR) & (values != 0)]
    fractions, exponents = np.frexp(near)
    digits = (np.abs(fractions) * 2.0**53).astype(np.int64)
    last = np.log2(digits & -digits).astype(int)
    return int((exponents - 53 + last).min()) if len(near) else 0
