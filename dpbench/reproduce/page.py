"""The page of a target whose files a function of its own computes."""

from dpbench.reproduce.target import Target
from dpbench.tables.markdown import document
from dpbench.tables.spec import PAPER_SCALE


def page(target: Target, *parts: str) -> bytes:
    """The page under the target's title. parts: paragraphs, lists and tables in Markdown."""
    return document(f"# {target.title}", *parts).encode()


def image(target: Target) -> str:
    """The target's picture, as its page shows it."""
    return f"![{target.title}]({target.stem}.png)"


def own_scale(target: Target) -> str:
    """The scale of runs whose set-up is ours, not the paper's, and what the user changed."""
    changed = "" if target.scale_label == PAPER_SCALE else f", changed: {target.scale_label}"
    return f"Our own runs{changed}"
