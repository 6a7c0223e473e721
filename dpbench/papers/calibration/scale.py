"""The label of measurements whose set-up is ours, not the paper's, even at the default settings."""

from dpbench.reproduce.target import Target
from dpbench.tables.spec import PAPER_SCALE


def own_scale(target: Target) -> str:
    """That the runs are ours, and what the user changed."""
    return (
        "Our own runs"
        if target.scale_label == PAPER_SCALE
        else f"Our own runs, changed: {target.scale_label}"
    )
