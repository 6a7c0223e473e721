"""Limits on the sizes of models and of their inputs."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from dpbench.system.errors import UserError
from dpbench.system.validate import integer

MAX_LAYERS = 1_000
"""More layers take too long to build."""

Dropout = Annotated[float, Meta(ge=0, lt=1)]
"""The share of numbers that are dropped in training."""


def check_layers(what: str, widths: Sequence[int]) -> None:
    """UserError for an invalid width or too many of them."""
    for width in widths:
        integer(f"each of {what}", width)
    if len(widths) > MAX_LAYERS:
        raise UserError(f"{what} has {len(widths)} layers: choose at most {MAX_LAYERS}.")


def image_shape(model: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Channels, height and width of the inputs; UserError if these are no images, or have a side of
    fewer than `least` pixels."""
    if len(shape) != 3:
        raise UserError(f"model={model} needs images, and these inputs are {shape}; use mlp.")
    channels, height, width = shape
    if min(height, width) < least:
        others = "mlp" if model == "cnn_tanh" else "cnn_tanh or mlp"
        raise UserError(
            f"model={model} needs images of {least} x {least} pixels or more, and these are "
            f"{height} x {width}; use {others}."
        )
    return channels, height, width
