"""The input shape of image models."""

from dpbench.system.errors import UserError


def image_shape(model: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Channels, height and width of the inputs.

    Raises UserError if inputs are not images, or have a side of fewer than `least` pixels.
    """
    if len(shape) != 3:
        raise UserError(f"model={model} needs images, and these inputs are {shape}; use mlp.")
    channels, height, width = shape
    if min(height, width) < least:
        raise UserError(
            f"model={model} needs images of {least} x {least} pixels or more, and these are "
            f"{height} x {width}; use cnn_tanh or mlp."
        )
    return channels, height, width
