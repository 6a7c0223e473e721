"""Limits on the number and the widths of layers."""

from collections.abc import Sequence

from dpbench.system.errors import UserError
from dpbench.system.validate import integer

MAX_LAYERS = 1_000
"""More layers take too long to build."""


def check_layers(what: str, widths: Sequence[int]) -> None:
    """UserError for an invalid width or too many of them."""
    for width in widths:
        integer(f"each of {what}", width)
    if len(widths) > MAX_LAYERS:
        raise UserError(f"{what} has {len(widths)} layers: choose at most {MAX_LAYERS}.")
