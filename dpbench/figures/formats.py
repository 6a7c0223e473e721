"""Renders a matplotlib figure in the formats of a paper, a page and a slide."""

import io
import textwrap

DPI = 300

WITHOUT_DATES: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
"""The metadata to leave out, by format, so that the same numbers always give the same bytes."""


def titled(figure, title: str):
    """The figure under a title."""
    # About twelve characters fit into an inch.
    figure.suptitle(textwrap.fill(title, int(12 * figure.get_figwidth())), fontsize=11)
    return figure


def images(figure) -> dict[str, bytes]:
    """The bytes of a figure by format: PNG, SVG and PDF."""
    return {suffix: image(figure, suffix) for suffix in WITHOUT_DATES}


def image(figure, suffix: str = "png") -> bytes:
    """The bytes of a figure in one format."""
    import matplotlib as mpl

    file = io.BytesIO()
    # Text stays text, so that it can be searched and edited.
    with mpl.rc_context({"svg.hashsalt": "dpbench", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(file, format=suffix, dpi=DPI, metadata=WITHOUT_DATES[suffix])
    return file.getvalue()
