"""Calibration errors and the Brier score; what they are computed from imports NumPy."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpbench.learning.metrics.metric import Margin, Metric

if TYPE_CHECKING:
    from torch import Tensor


def ece(outputs: "Tensor", targets: "Tensor", groups: object = None) -> float:
    """Mean over examples of |accuracy - mean confidence| of the example's bin, in [0, 1].

    The confidence is the largest softmax probability; 15 bins of equal width, the l1 norm, bins
    weighted by their examples (Guo et al. 2017, eq. 3). NaN without examples or where an output is
    not finite.
    """
    from dpbench.learning.metrics.calibration import equal_width, expected, rank_by_confidence

    return expected(equal_width(rank_by_confidence(outputs, targets)))


def mce(outputs: "Tensor", targets: "Tensor", groups: object = None, least: int = 1) -> float:
    """The largest |accuracy - mean confidence| of any bin with `least` or more examples, in [0, 1].

    The same bins as those of the ECE (Guo et al. 2017, eq. 4). It is not weighted, so with `least`
    1, as in the formula, a bin of one example can decide it. NaN if no bin has enough examples or
    an output is not finite.
    """
    from dpbench.learning.metrics.calibration import equal_width, maximum, rank_by_confidence

    return maximum(equal_width(rank_by_confidence(outputs, targets)), least)


def adaptive_ece(outputs: "Tensor", targets: "Tensor", groups: object = None) -> float:
    """The ECE over 15 bins of equal mass, between quantiles of the confidence.

    Equal confidences share a bin, so with many ties there are fewer bins (Nguyen and O'Connor 2015,
    "Posterior calibration and exploratory analysis for natural language processing models").
    """
    from dpbench.learning.metrics.calibration import equal_mass, expected, rank_by_confidence

    return expected(equal_mass(rank_by_confidence(outputs, targets)))


def ece_temperature(outputs: "Tensor", targets: "Tensor", groups: object = None) -> float:
    """The ECE of half of the examples, after a temperature fitted on the others."""
    from dpbench.learning.metrics.calibration import effect_of_scaling

    return effect_of_scaling(outputs, targets).ece


def mean_brier(outputs: "Tensor", targets: "Tensor", groups: object = None) -> float:
    """The mean Brier score, in [0, 2]."""
    from dpbench.learning.metrics.calibration import brier

    return brier(outputs, targets).mean().item()


ECE = Metric("ECE", "percent", 1, "lower", "calibration", Margin(0.5), ece)
MCE = Metric("MCE", "percent", 1, "lower", "calibration", Margin(2.0), mce, is_offered=False)
MCE_MIN20 = replace(MCE, label="MCE of bins of 20 and more", compute=partial(mce, least=20))
ADAPTIVE_ECE = replace(ECE, label="adaptive ECE", compute=adaptive_ece, is_offered=False)
ECE_TEMPERATURE = replace(ADAPTIVE_ECE, label="ECE after a temperature", compute=ece_temperature)
BRIER = Metric("Brier score", "", 3, "lower", "calibration", compute=mean_brier, is_offered=False)
