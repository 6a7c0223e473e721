"""One private step and the parts it is composed of: sampling, noise, update, schedules."""

from dpbench.step.mechanism.gradient import Gradient, PerExample, ReleasedState
from dpbench.step.mechanism.method import Inapplicable, Method, NoiseRule, as_published, checked
from dpbench.step.mechanism.noise import CorrelatedGaussian, NoNoise, PerCoordinate
from dpbench.step.mechanism.schedules import Schedule, schedule
from dpbench.step.mechanism.streams import Stream
from dpbench.step.mechanism.update import Plain, Sign, Update

__all__ = [
    "CorrelatedGaussian",
    "Gradient",
    "Inapplicable",
    "Method",
    "NoNoise",
    "NoiseRule",
    "PerCoordinate",
    "PerExample",
    "Plain",
    "ReleasedState",
    "Schedule",
    "Sign",
    "Stream",
    "Update",
    "as_published",
    "checked",
    "schedule",
]
