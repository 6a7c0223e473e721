"""Renders a matplotlib figure as PNG."""

import io
import textwrap


def png(figure, title: str | None = None) -> bytes:
    """The bytes of a PNG, under a title: the same numbers always give the same bytes."""
    if title is not None:
        # About twelve characters fit into an inch.
        figure.suptitle(textwrap.fill(title, int(12 * figure.get_figwidth())), fontsize=11)
    file = io.BytesIO()
    # No software version in the file.
    figure.savefig(file, dpi=120, metadata={"Software": None})
    return file.getvalue()
