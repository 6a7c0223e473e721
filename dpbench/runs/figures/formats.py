"""The style of figures, and their formats: PDF and SVG for a paper, PNG for a page and a slide."""

import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 6.8
"""Widths in inches: of a column of a paper, and of its page."""

POINTS = 8
"""The size of text; none is larger."""

DPI, SCREEN_DPI = 200, 100
"""Pixels per inch of a page's picture and of one on a screen."""

WITHOUT_DATES: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
"""The metadata to leave out, by format, so that the same numbers always give the same bytes."""

HANDLE = 8
"""The room of a line or marker and of the gap beside it in a legend, in characters."""

SYMBOLS = {
    **dict.fromkeys(("lr", "optimizer.lr"), "\N{GREEK SMALL LETTER ETA}"),
    **dict.fromkeys(("method.bound", "method.clip.bound"), "R"),
    **dict.fromkeys(("epsilon", "privacy.epsilon"), "\N{GREEK SMALL LETTER EPSILON}"),
    **dict.fromkeys(("sigma", "privacy.noise_multiplier"), "\N{GREEK SMALL LETTER SIGMA}"),
    **dict.fromkeys(("lambda", "method.lambda_"), "\N{GREEK SMALL LETTER LAMDA}"),
}
"""What stands for settings in figures."""


def paper_figure(panels: int, height: float) -> "Figure":
    """An empty figure as wide as a column for one panel side by side, else as a page. height: in
    inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(COLUMN if panels == 1 else PAGE, height), layout="constrained")


def symbol(text: str) -> str:
    """A setting by its symbol, alone or, as in `dutch, epsilon 3`, before its value."""
    values = rf"\b({'|'.join(SYMBOLS)}) (?=[\d.])"
    return SYMBOLS.get(text) or re.sub(values, lambda found: f"{SYMBOLS[found[1]]} = ", text)


def legend_below(figure: "Figure", axes: Iterable, title: str = "") -> bool:
    """One legend under all panels; False, and none, where a label looks different in two panels,
    or two labels look the same."""
    handles: dict = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if _look(handles.setdefault(label, handle)) != _look(handle):
                return False
    if len({*map(_look, handles.values())}) < len(handles):
        return False
    columns = _columns([*handles], 15 * figure.get_figwidth())
    figure.legend(
        handles=[*handles.values()],
        labels=[*handles],
        loc="outside lower center",
        ncols=columns,
        title=title or None,
    )
    return True


def _columns(labels: Sequence[str], room: float) -> int:
    """The most columns of a legend in which labels fit into so many characters."""
    for columns in range(len(labels), 1, -1):
        least, longer = divmod(len(labels), columns)  # the first columns have one more
        ends = [0, *accumulate(least + (at < longer) for at in range(columns))]
        widest = (max(map(len, labels[low:high])) for low, high in pairwise(ends))
        if sum(widest) + HANDLE * columns <= room:
            return columns
    return 1


def _look(handle) -> tuple[str, ...]:
    """What tells a line or a marker with its whiskers from another."""
    line = handle.lines[0] if hasattr(handle, "lines") else handle
    parts = ("color", "facecolor", "edgecolor", "linestyle", "marker", "markersize")
    looks = (getattr(line, f"get_{part}", None) for part in parts)
    return tuple(str(look()) for look in looks if look)


def titled(figure: "Figure", title: str) -> "Figure":
    """The figure under a title, which only its PNG shows: a paper has a caption."""
    lines = textwrap.fill(title, int(14 * figure.get_figwidth()))
    figure.suptitle(lines, parse_math=False)
    return figure


def images(figure: "Figure") -> dict[str, bytes]:
    """The bytes of a figure by format: PNG, and SVG and PDF without its title."""
    title = figure.get_suptitle()
    figure.suptitle("").set_in_layout(False)
    drawn = {suffix: image(figure, suffix) for suffix in ("svg", "pdf")}
    figure.suptitle(title, parse_math=False).set_in_layout(True)
    return {"png": image(figure), **drawn}


def image(figure: "Figure", suffix: str = "png", dpi: int | None = None) -> bytes:
    """The bytes of a figure in one format; dpi: DPI, if None."""
    import matplotlib as mpl

    file = io.BytesIO()
    _set_text(figure)
    # Text stays text, so that it can be searched and edited.
    with (
        mpl.rc_context({"svg.hashsalt": "dpbench", "svg.fonttype": "none", "pdf.fonttype": 42}),
        warnings.catch_warnings(),
    ):
        # A name may have letters that matplotlib's font lacks: they are drawn as boxes.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format=suffix, dpi=dpi or DPI, metadata=WITHOUT_DATES[suffix])
    return file.getvalue() if dpi or suffix != "png" else _with_palette(file)


def _with_palette(png: io.BytesIO) -> bytes:
    """A PNG in 256 colours: a third of the bytes."""
    from PIL import Image

    file = io.BytesIO()
    few = Image.open(png).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(file, "png", dpi=(DPI, DPI))
    return file.getvalue()


def _set_text(figure: "Figure") -> None:
    """No text larger than POINTS, and numbers on logarithmic axes that do not collide."""
    from matplotlib.text import Text

    for axes in figure.axes:
        axes.tick_params(labelsize=POINTS)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log" and getattr(axis.get_transform(), "base", 0) == 10:
                _number_decades(axis)
    for text in figure.findobj(Text):
        text.set_fontsize(min(POINTS, text.get_fontsize()))


NARROW = 20.0
"""The ratio of the ends of an axis up to which there is room for 1, 2, 5, 10, ..."""


def _number_decades(axis) -> None:
    """Powers of ten; over few of them, 2 and 5 times them as well."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    wide = low > 0 and high > NARROW * low
    axis.set_major_locator(LogLocator(10, (1.0,) if wide else (1.0, 2.0, 5.0), numticks=12))
    axis.set_minor_formatter(NullFormatter())
    if not wide or (low >= 1e-3 and high <= 1e5):
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
