"""The colour and the marker of each method: the same in every picture, on the page and on paper."""

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    *("#e69f00", "#56b4e9", "#4d4d4d", "#a89a00"),
)
"""Okabe and Ito's, which colour-blind readers tell apart; the style sheet's c0, c1, ..."""

MARKS = {
    **{"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^"},
    **{"cross": "P", "triangle-down": "v", "x": "X", "star": "*"},
}
"""The markers of the page, and matplotlib's for each."""

ORDER = (
    *("dpsgd", "dpsgd_f", "bam", "dpsgd_global", "dpsgd_quantile", "dpsgd_global_adapt", "sgd"),
    *("slaclip", "raco", "dpsat", "dicesgd", "disk", "doppler", "dp_adam_bc", "signsgd"),
    *("dp_mf", "dp_mf_blt", "fairlens", "dpsgd_bounded", "dp_signsgd", "dpsgld", "dp_losgd"),
    *("dp_signlosgd", "bam_exact", "dpsgd_jl", "dpzero", "dp_prototypes", "dp_least_squares"),
    *("dp_fedavg", "dp_fedsgd", "dpsghmc", "dp_signsgd_laplace", "dp_signsgd_coordinate"),
    *("dpsgd_coordinate", "direction_error", "magnitude_error"),
)
"""Methods that are often compared, chosen to differ in colour. The look of any other, new or of a
plug-in, follows from its name and is none of theirs: a longer list would change it."""


class Look(NamedTuple):
    """The number of a colour, and a marker of the page."""

    colour: int
    mark: str


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """The look of each method of a picture, no two the same for up to 64 methods."""
    places: dict[str, int] = {}
    for method in sorted({*methods}, key=lambda name: (name not in ORDER, name)):
        wanted = _place(method)
        taken = {*places.values()}
        free = [i for i in range(wanted, wanted + _NUMBER) if i % _NUMBER not in taken]
        places[method] = (free or [wanted])[0] % _NUMBER
    return {method: _look(place) for method, place in places.items()}


def on_paper(methods: Iterable[str]) -> Mapping[str, dict[str, str]]:
    """The looks as matplotlib's `color` and `marker`."""
    return {
        method: {"color": COLOURS[look.colour], "marker": MARKS[look.mark]}
        for method, look in looks(methods).items()
    }


_NUMBER = len(COLOURS) * len(MARKS)


def _place(method: str) -> int:
    if method in ORDER:
        return ORDER.index(method)
    place = zlib.crc32(method.encode()) % _NUMBER
    return place if place >= len(ORDER) else len(ORDER) + place % (_NUMBER - len(ORDER))


def _look(place: int) -> Look:
    colour, mark = place % len(COLOURS), (place + place // len(COLOURS)) % len(MARKS)
    return Look(colour, [*MARKS][mark])
