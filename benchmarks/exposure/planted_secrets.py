"""The exposure of secrets that a language model was trained on (Carlini et al. 2019, "The secret
sharer: evaluating and testing unintended memorization in neural networks", section 4).

The secrets are the targets of a run with `mislabelled=N`: texts of random tokens, which a coin
plants or leaves out. Those left out are the candidates that an attacker guesses among.
"""

import numpy as np

from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError


def exposures(record: Record) -> np.ndarray:
    """The exposure of each planted secret of a run, in bits; UserError for a run without any."""
    if "target/loss" not in record.diagnostics:
        raise UserError("this run has no secrets: run it with mislabelled=N.")
    losses = np.array(record.diagnostics["target/loss"])
    planted = np.array(record.diagnostics["target/included"]) == 1
    return exposures_of(losses[planted], losses[~planted])


def exposures_of(secrets: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """For losses of secrets [m] and of other candidates [n], log2(n + 1) less log2 of the rank of
    each secret among them, [m]: log2(n + 1) for the first, 0 for the last.

    Ties count against the attacker. By chance alone the mean over many secrets is about
    log2(e) = 1.44 bits, as ranks are uniform.
    """
    ranks = 1 + np.searchsorted(np.sort(candidates), secrets, "right")
    return np.log2(len(candidates) + 1) - np.log2(ranks)
