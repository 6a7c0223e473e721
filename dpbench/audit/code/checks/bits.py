"""A check of the last bits of a noisy sum, which tell the sum if the noise is not on a grid."""

import numpy as np
import torch

from dpbench.audit.code.audited import Audited
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import NOTHING, Finding, flagged, skipped

RUNS, CANARIES = 24, 16
"""Runs of one step, in each of which so many coordinates have a sum of 1, and as many one of 0."""

NEAR = 0.25
"""Sums nearer to 0 than this, where 1 plus noise has fewer bits than noise alone."""

COARSER = 3
"""How many bits fewer are no chance."""


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
