"""The settings that runs of one method sweep over, as filters and axes for the page."""

from collections.abc import Iterable, Mapping

from dpbench.comparison.dashboard.differing_settings import DEFAULTS, flatten, value_of
from dpbench.comparison.dashboard.values import finite_number
from dpbench.runs.config.settings import leaves

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
    name and its values in order.
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
    every = [settings for group in flat.values() for settings in group.values()]
    return [_entry(name, every) for name in names]


def all_settings(groups: Mapping[str, dict]) -> dict[str, dict[str, str | None]]:
    """The settings of each group of runs by name, null for those that it lacks.

    groups: one configuration of each.
    """
    flat = {group: flatten(config) | _budget(config) for group, config in groups.items()}
    names = sorted(_names(flat.values()))
    return {
        group: {name: _text(settings, name) for name in names} for group, settings in flat.items()
    }


def _budget(config: dict) -> dict[str, object]:
    """The settings of the privacy budget, which are no sweep."""
    return {key: value for key, value in leaves({"privacy": config.get("privacy") or {}}) if value}


def _names(group: Iterable[Mapping[str, object]]) -> set[str]:
    return {name for settings in group for name in settings if not name.endswith("_target_")}


def _entry(name: str, every: Iterable[Mapping[str, object]]) -> dict:
    values = sorted({_value(settings, name) for settings in every}, key=in_order)
    return {
        "name": name,
        "values": values,
        "numeric": sum(finite_number(value) is not None for value in values) > 1,
    }


def _has(settings: Mapping[str, object], name: str) -> bool:
    """Whether a setting applies: those of options not chosen do not, those that are off do."""
    return name in settings or name in DEFAULTS or "." not in name


def _value(settings: Mapping[str, object], name: str) -> str:
    return _text(settings, name) or ABSENT


def _text(settings: Mapping[str, object], name: str) -> str | None:
    value = value_of(settings, name)
    if value is None:
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def in_order(text: str) -> tuple:
    """A key that sorts numbers by their size, and before other texts."""
    number = finite_number(text)
    return (1, 0.0, text) if number is None else (0, number, "")
