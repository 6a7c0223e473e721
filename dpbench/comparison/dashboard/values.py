"""Values as text: how the page and its files round; and numbers in texts."""

import math

from dpbench.comparison.tables.grid import number, signed
from dpbench.runs.records import epsilon as rounding
from dpbench.system.validate import spelled_number

DASH = "–"
"""Where there is no value."""


def finite_number(text: str) -> float | None:
    """The finite number that a text spells; None if it spells none."""
    number = spelled_number(text)
    return number if isinstance(number, float) and math.isfinite(number) else None


def value_text(value: float | None, percent: bool) -> str:
    """A value without its unit: in percent with one decimal, else in three significant digits."""
    if value is None:
        return DASH
    return number(100 * value, 1) if percent else number(value, None)


def with_unit(value: float | None, percent: bool) -> str:
    """A value with its unit, such as `86.6 %`."""
    return value_text(value, percent) + (" %" if percent and value is not None else "")


def gap_text(gap: tuple[float, float | None], percent: bool) -> str:
    """A difference with its sign and, if it has one, the half of its interval: `+2.0 ± 0.3`."""
    mean, half = gap
    text = signed(100 * mean if percent else mean, 1 if percent else None)
    text = text.replace("-", "−", 1) if text.startswith("-") else text
    return text if half is None else f"{text} ± {value_text(half, percent)}"


def delta_text(delta: float | None) -> str:
    """A delta in three significant digits, rounded up."""
    return DASH if delta is None else rounding.delta_text(delta, 3)


def epsilon_text(epsilon: float | str) -> str:
    """An epsilon rounded up, or the reason why there is none."""
    return epsilon if isinstance(epsilon, str) else rounding.rounded_up(epsilon)
