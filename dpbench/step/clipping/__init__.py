"""Clips: from norms to factors, and the resulting sensitivity of the sum.

The sensitivity is the largest L2 distance by which adding or removing one example moves sum_i
factor_i g_i; noise and ledger read that same number. An adaptive clip queries a noisy count of the
batch, and is replaced by a new value that depends on the answer alone.
"""

from dpbench.step.clipping.batch import BatchClip
from dpbench.step.clipping.choice import (
    CLIPS,
    STYLES,
    Bounds,
    ClipName,
    by_norm,
    make_clip,
    require_style,
)
from dpbench.step.clipping.clip import Bound, Clip, CountQuery, DelegatingClip, Sensitivity
from dpbench.step.clipping.coordinates import Coordinates
from dpbench.step.clipping.functions import (
    Abadi,
    Automatic,
    ByNorm,
    Global,
    Normalise,
    PerSampleAdaptive,
    Tanh,
    Unclipped,
)
from dpbench.step.clipping.layerwise import Layerwise
from dpbench.step.clipping.problem import Part, Problem
from dpbench.step.clipping.quantile import NormalisedQuantile, Quantile

__all__ = [
    "CLIPS",
    "STYLES",
    "Abadi",
    "Automatic",
    "BatchClip",
    "Bound",
    "Bounds",
    "ByNorm",
    "Clip",
    "ClipName",
    "Coordinates",
    "CountQuery",
    "DelegatingClip",
    "Global",
    "Layerwise",
    "Normalise",
    "NormalisedQuantile",
    "Part",
    "PerSampleAdaptive",
    "Problem",
    "Quantile",
    "Sensitivity",
    "Tanh",
    "Unclipped",
    "by_norm",
    "make_clip",
    "require_style",
]
