"""Per-example gradients: three engines that agree, and the choice between them."""

from dpbench.step.gradients.choice import ENGINES, EngineFallback, make_engine
from dpbench.step.gradients.engine import Engine, Gradients, Loss, PerExampleShift, Shift
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Layer, Layout, Parameters

__all__ = [
    "ENGINES",
    "Engine",
    "EngineFallback",
    "ForwardOptions",
    "Gradients",
    "Layer",
    "Layout",
    "Loss",
    "Parameters",
    "PerExampleShift",
    "Shift",
    "make_engine",
]
