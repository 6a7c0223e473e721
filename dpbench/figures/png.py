"""A figure of matplotlib as the bytes of its file."""

import io
import textwrap


def png(figure, title: str | None = None) -> bytes:
    """The figure under its title: the same numbers give the same bytes, whatever drew them."""
    if title is not None:
        # About twelve letters fit into an inch.
        figure.suptitle(textwrap.fill(title, int(12 * figure.get_figwidth())), fontsize=11)
    file = io.BytesIO()
    # No software version in the file.
    figure.savefig(file, dpi=120, metadata={"Software": None})
    return file.getvalue()
