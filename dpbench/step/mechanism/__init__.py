"""One private step and the parts it is composed of: sampling, noise, update, schedules."""

from dpbench.step.mechanism.gradient import Gradient, PerExample, ReleasedState
from dpbench.step.mechanism.method import Inapplicable, Method, as_published
from dpbench.step.mechanism.noise import CorrelatedGaussian, NoNoise, PerCoordinate
from dpbench.step.mechanism.schedules import Schedule, Schedules, schedule
from dpbench.step.mechanism.streams import Stream
from dpbench.step.mechanism.update import Plain, Sign, Update

__all__ = [
    "CorrelatedGaussian",
    "Gradient",
    "Inapplicable",
    "Method",
    "NoNoise",
    "PerCoordinate",
    "PerExample",
    "Plain",
    "ReleasedState",
    "Schedule",
    "Schedules",
    "Sign",
    "Stream",
    "Update",
    "as_published",
    "schedule",
]
