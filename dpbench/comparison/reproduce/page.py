"""Parts of the page of a target."""

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.edition import PAPER_SCALE
from dpbench.comparison.tables.page import Page, PageBlock

NOT_PRIVATE = (
    "Drawn from private data without accounting for it; nothing here is released privately."
)
"""On the page of a picture whose numbers no epsilon covers."""


def page(target: Target, *blocks: PageBlock) -> Page:
    """The page under the target's title, with its command at the end."""
    return Page(target.title, blocks, target.command)


def image(target: Target) -> str:
    """The target's picture, in Markdown."""
    return f"![{target.title}]({target.stem}.png)"


def own_scale(target: Target) -> str:
    """The scale, on a page, of runs in our own set-up, with what the user changed."""
    changed = "" if target.scale_label == PAPER_SCALE else f", changed: {target.scale_label}"
    return f"Our own runs{changed}"
