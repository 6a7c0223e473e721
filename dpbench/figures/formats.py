"""Renders a matplotlib figure in the formats of a paper, a page and a slide."""

import io
import textwrap
import warnings

DPI, SCREEN_DPI = 300, 100
"""Pixels per inch on paper and on a screen."""

WITHOUT_DATES: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
"""The metadata to leave out, by format, so that the same numbers always give the same bytes."""


def titled(figure, title: str):
    """The figure under a title."""
    # About twelve characters fit into an inch.
    lines = textwrap.fill(title, int(12 * figure.get_figwidth()))
    figure.suptitle(lines, fontsize=11, parse_math=False)
    return figure


def images(figure) -> dict[str, bytes]:
    """The bytes of a figure by format: PNG, SVG and PDF."""
    return {suffix: image(figure, suffix) for suffix in WITHOUT_DATES}


def image(figure, suffix: str = "png", dpi: int = DPI) -> bytes:
    """The bytes of a figure in one format."""
    import matplotlib as mpl

    file = io.BytesIO()
    # Text stays text, so that it can be searched and edited.
    with (
        mpl.rc_context({"svg.hashsalt": "dpbench", "svg.fonttype": "none", "pdf.fonttype": 42}),
        warnings.catch_warnings(),
    ):
        # A name may have letters that matplotlib's font lacks: they are drawn as boxes.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format=suffix, dpi=dpi, metadata=WITHOUT_DATES[suffix])
    return file.getvalue()
