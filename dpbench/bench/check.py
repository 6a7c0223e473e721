"""Whether a contender does the step it is timed for: the right sum, and noise of the right size."""

import math
from dataclasses import dataclass

import numpy as np

from dpbench.bench.stepper import BOUND, LR, NOISE_MULTIPLIER, Stepper

TOLERANCE = 1e-3
"""Largest |update - reference| / |reference| that float32 and another order of sums explain."""

LOUD = 1000.0
"""A noise multiplier beside which the clipped sum can be neglected."""

SMALL = 1e-5
"""A learning rate at which even loud noise leaves the weights where they are."""


@dataclass(frozen=True)
class Observation:
    """What a stepper did: its update [D] at noise 0 and learning rate 1, and how loud its noise is.

    loudness: root mean square of the noise per coordinate, 1 if it is as it should be.
    """

    update: np.ndarray
    loudness: float


def observe(stepper: Stepper, batch_size: int) -> Observation:
    """Two steps of the very stepper that will be timed, one without noise and one of noise."""
    update = _update(stepper, lr=1.0, noise_multiplier=0.0)
    noise = _update(stepper, lr=SMALL, noise_multiplier=LOUD)
    stepper.configure(LR, NOISE_MULTIPLIER)
    size = np.sqrt(np.mean(np.square(noise, dtype=np.float64)))
    return Observation(update, float(size * batch_size / (SMALL * LOUD * BOUND)))


def _update(stepper: Stepper, lr: float, noise_multiplier: float) -> np.ndarray:
    stepper.configure(lr, noise_multiplier)
    before = stepper.weights()
    stepper()
    stepper.wait()
    return (before - stepper.weights()).numpy()


@dataclass(frozen=True)
class Verdict:
    """The error of the sum, relative to the reference's norm, and "ok" or what is wrong."""

    error: float
    said: str


def verdict(observed: Observation, reference: np.ndarray, private: bool) -> Verdict:
    """Compare a contender's update [D], and its noise if it has to have any, with the reference."""
    if observed.update.shape != reference.shape:
        return Verdict(math.nan, "WRONG: another number of parameters")
    error = float(np.linalg.norm(observed.update - reference) / np.linalg.norm(reference))
    if not error <= TOLERANCE:
        return Verdict(error, f"WRONG: the sum is off by {error:.1e} of its norm")
    # Five standard deviations of a root mean square over D draws, and float32's rounding.
    margin = 5 / math.sqrt(2 * len(reference)) + 0.01
    if private and not abs(observed.loudness - 1) <= margin:
        return Verdict(error, f"WRONG: the noise is {observed.loudness:.2g} of what it should be")
    return Verdict(error, "ok")
