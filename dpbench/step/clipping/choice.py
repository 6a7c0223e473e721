"""Clips by their configured names; unsupported combinations are refused."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from dpbench.step.clipping.batch import BatchClip
from dpbench.step.clipping.clip import Clip, check_bound
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
from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of

BY_NORM: dict[str, Callable[[float], ByNorm]] = {
    "abadi": Abadi,
    "automatic": partial(Automatic, constant=0.01),
    "normalise": Normalise,
    "global": lambda bound: Global(bound, strict_bound=bound),
    "psac": partial(PerSampleAdaptive, regulariser=0.1),
    "tanh": Tanh,
}
"""Functions of a gradient's norm that bound the effect of one example."""

WITHOUT_PROOF: dict[str, Callable[[float], Clip]] = {"batch": BatchClip, "none": Unclipped}
"""Clips that do not bound the effect of one example, although noise is scaled by R."""

CLIPS = (*BY_NORM, *WITHOUT_PROOF)
STYLES = ("flat", "layerwise")

Bounds = float | list[float] | tuple[float, ...]

ClipName = str | dict[str, Any]
"""The name of a clip, or a mapping with its name and its constants."""


def make_clip(clip: ClipName, style: str, bound: Bounds) -> Clip:
    """The clip of that name and style.

    bound: R; for layerwise clips either R, which gives R_r = R/sqrt(L), or a list of the R_r.
    Raises UserError for unknown names and constants, and for unsupported combinations.
    """
    name, make = _named(clip)
    if name in BY_NORM:
        return by_norm(clip, style, bound)
    one_of("method.style", style, STYLES)
    if name == "batch":
        require_style("flat", style, "method.clip=batch", "it has one factor for all of a batch")
    total = _total(bound, style)
    check_bound("the clipping bound (method.bound)", total)
    return make(total)


def by_norm(clip: ClipName, style: str, bound: Bounds) -> ByNorm | Layerwise:
    """The clip of that name and style; UserError unless it is a function of the gradient's norm."""
    name, make = _named(clip)
    if name in WITHOUT_PROOF:
        raise UserError(f"method.clip={name} has no bound to adapt: choose {', '.join(BY_NORM)}.")
    one_of("method.style", style, STYLES)
    total = _total(bound, style)
    if style == "flat":
        return make(total)
    if not isinstance(bound, list | tuple):
        return Layerwise(make(total))
    return Layerwise(make(total), tuple(number / total for number in bound))


def _named(clip: ClipName) -> tuple[str, Callable[[float], Any]]:
    """The name of a clip, and what makes it with its constants from a bound."""
    constants = {"name": clip} if isinstance(clip, str) else dict(clip)
    known_keys("method.clip", constants, constants, required=["name"])
    name = one_of("method.clip", constants.pop("name"), CLIPS)
    make = {**BY_NORM, **WITHOUT_PROOF}[name]
    known_keys(f"method.clip={name}", constants, getattr(make, "keywords", ()))
    return name, partial(make, **constants)


def require_style(supported: str, style: str, what: str, why: str) -> None:
    """UserError unless `style` is the supported one; `why` is the reason in its message."""
    one_of("method.style", style, STYLES)
    if style != supported:
        raise UserError(f"{what} cannot be {style}: {why}; use method.style={supported}.")


def _total(bound: Bounds, style: str) -> float:
    """R, of which a list has the part of each layer."""
    if not isinstance(bound, list | tuple):
        return bound
    if style == "flat":
        raise UserError(
            "method.bound has one number per layer, which needs method.style=layerwise."
        )
    for number in bound:
        check_bound("each of method.bound", number)
    return math.hypot(*bound)
