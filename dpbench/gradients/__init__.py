"""Per-example gradients: three engines that agree, and the choice between them."""

from dpbench.gradients.choice import ENGINES, EngineFallback, make_engine
from dpbench.gradients.engine import Engine, Gradients, Loss, PerExampleShift, Shift
from dpbench.gradients.options import ForwardOptions
from dpbench.gradients.parameters import Layer, Layout, Parameters

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
