"""How many layers a model may have, and how wide they are."""

from collections.abc import Sequence

from dpbench.errors import UserError
from dpbench.validate import integer

MOST_LAYERS = 1_000
"""More take longer to make than anybody waits for."""


def check_layers(what: str, widths: Sequence[int]) -> None:
    """UserError for a width that is none, and for too many of them."""
    for width in widths:
        integer(f"each of {what}", width)
    if len(widths) > MOST_LAYERS:
        raise UserError(f"{what} has {len(widths)} layers: choose at most {MOST_LAYERS}.")
