"""What is said of the size of runs where the paper's are others even if nothing was changed."""

from dpbench.reproduce.target import Target
from dpbench.tables import PAPER_SCALE


def own_scale(wanted: Target) -> str:
    """Whose runs they are, and what the user changed of them."""
    return (
        "Our own runs"
        if wanted.scale_label == PAPER_SCALE
        else f"Our own runs, changed: {wanted.scale_label}"
    )
