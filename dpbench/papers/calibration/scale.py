"""What is said of the size of runs where the paper's are others even if nothing was changed."""

from dpbench.reproduce.target import PAPER, Target


def own_scale(wanted: Target) -> str:
    """Whose runs they are, and what the user changed of them."""
    return "Our own runs" if wanted.scale == PAPER else f"Our own runs, changed: {wanted.scale}"
