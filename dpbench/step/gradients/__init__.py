"""Per-example gradients: three engines that agree, and the choice between them."""

from dpbench.step.gradients.choice import ENGINES, make_engine
from dpbench.step.gradients.engine import (
    DelegatingGradients,
    Engine,
    EngineFallback,
    Gradients,
    Loss,
    MaterialisedGradients,
    PerExampleShift,
    Shift,
)
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Layer, Layout, Parameters
from dpbench.step.gradients.precision import at_least_float32

__all__ = [
    "ENGINES",
    "DelegatingGradients",
    "Engine",
    "EngineFallback",
    "ForwardOptions",
    "Gradients",
    "Layer",
    "Layout",
    "Loss",
    "MaterialisedGradients",
    "Parameters",
    "PerExampleShift",
    "Shift",
    "at_least_float32",
    "make_engine",
]
