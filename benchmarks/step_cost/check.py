"""Checks the step of a contender: the clipped sum, and the scale of the noise."""

import math
from dataclasses import dataclass

import numpy as np

from .stepper import BOUND, LR, NOISE_MULTIPLIER, Stepper

TOLERANCE = 1e-3
"""Largest |update - reference| / |reference| that float32 and another order of sums explain."""

LARGE_NOISE = 1000.0
"""A noise multiplier at which the clipped sum is negligible."""

SMALL_LR = 1e-5
"""A learning rate at which even large noise barely changes the weights."""


@dataclass(frozen=True)
class Observation:
    """The update [D] of a stepper at noise 0 and learning rate 1, and the scale of its noise.

    noise_scale: root mean square of the noise per coordinate over its nominal value.
    """

    update: np.ndarray
    noise_scale: float


def observe(stepper: Stepper, batch_size: int) -> Observation:
    """Two steps of the stepper to be timed: one without noise, and one that is mostly noise."""
    update = _update(stepper, lr=1.0, noise_multiplier=0.0)
    noise = _update(stepper, lr=SMALL_LR, noise_multiplier=LARGE_NOISE)
    stepper.configure(LR, NOISE_MULTIPLIER)
    rms = np.sqrt(np.mean(np.square(noise, dtype=np.float64)))
    return Observation(update, float(rms * batch_size / (SMALL_LR * LARGE_NOISE * BOUND)))


def _update(stepper: Stepper, lr: float, noise_multiplier: float) -> np.ndarray:
    stepper.configure(lr, noise_multiplier)
    before = stepper.weights()
    stepper()
    stepper.wait()
    return (before - stepper.weights()).numpy()


@dataclass(frozen=True)
class Verdict:
    """The error of the sum relative to the reference's norm, and "ok" or what is wrong."""

    error: float
    message: str


def verdict(observation: Observation, reference: np.ndarray, noisy: bool) -> Verdict:
    """Compare a contender's update [D], and its noise if it adds any, with the reference."""
    if observation.update.shape != reference.shape:
        return Verdict(math.nan, "WRONG: another number of parameters")
    error = float(np.linalg.norm(observation.update - reference) / np.linalg.norm(reference))
    if not error <= TOLERANCE:
        return Verdict(error, f"WRONG: the sum is off by {error:.1e} of its norm")
    # Five standard deviations of a root mean square over D draws, and float32's rounding.
    margin = 5 / math.sqrt(2 * len(reference)) + 0.01
    scale = observation.noise_scale
    if noisy and not abs(scale - 1) <= margin:
        return Verdict(error, f"WRONG: the noise is {scale:.2g} of what it should be")
    return Verdict(error, "ok")
