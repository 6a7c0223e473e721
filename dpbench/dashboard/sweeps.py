"""The settings that runs of one method sweep over, as filters and axes for the page."""

import math
from collections.abc import Iterable, Mapping

from dpbench.dashboard.differing_settings import DEFAULTS, flatten
from dpbench.system.validate import spelled_number

MAX_SETTINGS = 24
"""The most settings on the page; those with the most values on one data set and method come
first."""

ABSENT = "–"
"""The value of a series without the setting."""

MAX_CHARACTERS = 40
"""Longer values are nested parts, which a filter cannot list."""


def swept_settings(series: Mapping[tuple, Mapping[str, dict]]) -> list[dict]:
    """Settings with several values on one data set and method, by their number of values.

    series: by data set and method, one configuration of each series. A setting is given by its
    name, its values in order, and for each series the place of its value.
    """
    flat = {
        key: {label: flatten(config) for label, config in configs.items()}
        for key, configs in series.items()
    }
    counts: dict[str, int] = {}
    for group in flat.values():
        for name in _names(group.values()):
            values = {_value(settings, name) for settings in group.values() if _has(settings, name)}
            if len(values) > 1 and max(map(len, values)) <= MAX_CHARACTERS:
                counts[name] = max(counts.get(name, 0), len(values))
    names = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_SETTINGS]
    by_series = {label: settings for group in flat.values() for label, settings in group.items()}
    return [_entry(name, by_series) for name in names]


def _names(group: Iterable[Mapping[str, object]]) -> set[str]:
    return {name for settings in group for name in settings if not name.endswith("_target_")}


def _entry(name: str, by_series: Mapping[str, Mapping[str, object]]) -> dict:
    texts = {label: _value(settings, name) for label, settings in by_series.items()}
    values = sorted({*texts.values()}, key=_order)
    place = {value: i for i, value in enumerate(values)}
    return {
        "name": name,
        "values": values,
        "numeric": sum(_spells_number(value) for value in values) > 1,
        "series": {label: place[text] for label, text in texts.items()},
    }


def _has(settings: Mapping[str, object], name: str) -> bool:
    """Whether a setting applies: those of options not chosen do not, those that are off do."""
    return name in settings or name in DEFAULTS or "." not in name


def _value(settings: Mapping[str, object], name: str) -> str:
    value = settings.get(name, DEFAULTS.get(name))
    if value is None:
        return ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(text: str) -> tuple:
    return (0, float(text), "") if _spells_number(text) else (1, 0.0, text)


def _spells_number(text: str) -> bool:
    number = spelled_number(text)
    return isinstance(number, float) and math.isfinite(number)
