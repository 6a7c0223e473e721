"""What the page offers to choose and to filter by: settings in which runs differ, and looks."""

from collections.abc import Iterable, Mapping, Sequence

from dpbench.comparison.dashboard.values import SHOWN, arrowed, finite_number
from dpbench.runs.config.history import ADDED_TO_METHOD, ADDED_TO_METHODS, ADDED_TO_PARTS
from dpbench.runs.config.settings import (
    OFF_VALUES,
    SCIENTIFIC,
    SETTINGS,
    canonical,
    leaves,
    varying_keys,
)
from dpbench.runs.records import epsilon
from dpbench.runs.records.digest import with_current_options
from dpbench.system.grouping import grouped

EXCLUDED = ("seed", "privacy", "diagnostics")
MAX_NAMED = 3

DEFAULTS = {
    **{f"method.{key}": value for key, value in ADDED_TO_METHODS.items()},
    **{key: setting.omitted[-1] for key, setting in SETTINGS.items() if any(setting.omitted)},
}
"""The values that `flatten` leaves out, but for those that say that something is off."""


def flatten(config: dict) -> dict[str, object]:
    """The scientific settings by dotted key, without those that are off or EXCLUDED, such as
    diagnostics, which change no metric; of the budget delta is kept, at which epsilons are stated.
    """
    parts = {key: config.get(key) for key in SCIENTIFIC if key not in EXCLUDED}
    parts["privacy"] = {"delta": (config.get("privacy") or {}).get("delta")}
    every = _left_out(config) | dict(leaves(parts))
    settings = {k: canonical(value) for k, value in every.items() if value not in OFF_VALUES}
    return {
        key: value
        for key, value in settings.items()
        if DEFAULTS.get(key) != value and not key.endswith("_partial_")
    }


def value_of(settings: Mapping[str, object], key: str) -> object:
    """The value of a setting, of those that `flatten` leaves out too; None if it is off."""
    return settings.get(key, DEFAULTS.get(key))


def _left_out(config: dict) -> dict[str, object]:
    targets = {group: (config.get(group) or {}).get("_target_") for group in ("dataset", "model")}
    added: dict[str, Mapping[str, object]] = {
        "method": ADDED_TO_METHOD.get(config["choices"]["method"], {}),
        **{group: ADDED_TO_PARTS.get(str(target), {}) for group, target in targets.items()},
    }
    return {f"{group}.{key}": value for group, part in added.items() for key, value in part.items()}


def differences(configs: Sequence[dict]) -> list[str]:
    """For each configuration, the settings in which it differs from the others, or "". Of a group
    whose options differ, the option is named, and settings only if they differ with the same
    options."""
    flat = [flatten(config) for config in configs]
    options = [with_current_options(config["choices"]) for config in configs]
    varying = varying_keys(flat)
    chosen = [key for key in varying_keys(options) if key not in EXCLUDED]
    groups = [key for key in chosen if any(v.startswith(f"{key}.") for v in varying)]
    others = [key for key in varying if key.partition(".")[0] not in groups]
    parts = [
        _select(choices, groups) | _select(settings, others)
        for choices, settings in zip(options, flat, strict=True)
    ]
    same_parts = grouped(zip(map(repr, parts), flat, strict=True))
    more = {key: varying_keys(settings) for key, settings in same_parts.items()}
    return [
        _words(part | _select(settings, more[repr(part)]))
        for part, settings in zip(parts, flat, strict=True)
    ]


def _select(settings: Mapping[str, object], keys: Sequence[str]) -> dict[str, object]:
    return {key: value_of(settings, key) for key in keys}


def _words(settings: dict[str, object]) -> str:
    words = [
        f"{_short(key)}={'none' if value is None else _text(value)}"
        for key, value in settings.items()
    ]
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return ", ".join(words[:MAX_NAMED]) + more


def _short(key: str) -> str:
    group, _, name = key.partition(".")
    return name if group in ("method", "optimizer", "privacy") and name else key


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


MAX_SETTINGS = 24
"""The most settings on the page; those with the most values on one data set and method come
first."""

ABSENT = "–"
"""The value of a series without the setting."""

MAX_CHARACTERS = 40
"""Longer values are nested parts, which a filter cannot list."""


def swept_settings(series: Mapping[tuple, Mapping[str, dict]]) -> list[dict]:
    """Settings with several values on one data set and method, by their number of values, as names
    with values in order. series: by data set and method, one configuration of each series."""
    flat = {
        key: {label: flatten(config) for label, config in configs.items()}
        for key, configs in series.items()
    }
    counts: dict[str, int] = {}
    for group in flat.values():
        for name in _names(group.values()):
            values = {
                _value(settings, name) or ABSENT
                for settings in group.values()
                if name in settings or name in DEFAULTS or "." not in name  # else of no option here
            }
            if len(values) > 1 and max(map(len, values)) <= MAX_CHARACTERS:
                counts[name] = max(counts.get(name, 0), len(values))
    names = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_SETTINGS]
    every = [settings for group in flat.values() for settings in group.values()]
    return [_entry(name, every) for name in names]


def all_settings(groups: Mapping[str, dict]) -> dict[str, dict[str, str | None]]:
    """The settings of each group of runs by name, null for those that it lacks. groups: one
    configuration of each."""
    flat = {group: flatten(config) | _budget(config) for group, config in groups.items()}
    names = sorted(_names(flat.values()))
    return {
        group: {name: _value(settings, name) for name in names} for group, settings in flat.items()
    }


def _budget(config: dict) -> dict[str, object]:
    return {key: value for key, value in leaves({"privacy": config.get("privacy") or {}}) if value}


def _names(group: Iterable[Mapping[str, object]]) -> set[str]:
    return {name for settings in group for name in settings if not name.endswith("_target_")}


def _entry(name: str, every: Iterable[Mapping[str, object]]) -> dict:
    values = sorted({_value(settings, name) or ABSENT for settings in every}, key=in_order)
    return {
        "name": name,
        "values": values,
        "numeric": sum(finite_number(value) is not None for value in values) > 1,
    }


def _value(settings: Mapping[str, object], name: str) -> str | None:
    value = value_of(settings, name)
    return None if value is None else _text(value)


def in_order(text: str) -> tuple:
    """A key that sorts numbers by their size, and before other texts."""
    number = finite_number(text)
    return (1, 0.0, text) if number is None else (0, number, "")


FILTERS = {
    "dataset": "Data set",
    "model": "Model",
    "method": "Method",
    "seed": "Seed",
    "status": "Status",
}
REASONS = ("ε = 0", *epsilon.REASONS)
"""What stands beside the axis of epsilon, in its order."""


def choices(
    metrics: Sequence[dict], swept: Sequence[dict], boards: Sequence[dict]
) -> dict[str, list[tuple[str, str]]]:
    """The values and texts of each choice, its default first; of a board, the page decides where
    nothing is chosen. metrics: from `metric_entry`. swept: from `swept_settings`."""
    names = ("board", "budget", "by")
    utility_first = sorted(metrics, key=lambda one: one["kind"] != "utility")
    return {
        "metric": [(m["name"], arrowed(m["title"], m["better"])) for m in utility_first],
        "accountant": [*SHOWN.items()],
        "axis": [
            ("epsilon", "ε"),
            *((one["name"], "seconds of a run") for one in metrics if one["name"] == "seconds"),
            *((s["name"], s["name"]) for s in swept if s["numeric"]),
        ],
        "show": [("best", "One curve a method"), ("all", "All settings")],
        "theme": [("system", "◐ system"), ("light", "☀ light"), ("dark", "☾ dark")],
        **{name: [("", ""), *((one[name], one[name]) for one in boards)] for name in names},
    }


def filters(rows: Sequence[dict], names: Mapping[str, str], swept: Iterable[dict]) -> list[dict]:
    """The filters, each with its name, label, and values with their texts; and what to tick for a
    method to be in colour, on which no run depends.

    names: of methods, for display. Audits are about no data set and no model.
    """
    found = {name: sorted({r[name] for r in rows} - {None}, key=in_order) for name in FILTERS}
    texts = {"method": names}
    return [
        *(_filter(n, label, found[n], texts.get(n, {})) for n, label in FILTERS.items()),
        *(_filter(s["name"], s["name"], s["values"], {}, swept=True) for s in swept),
        _filter("focus", "In colour", sorted(names), names),
    ]


def _filter(
    name: str, label: str, values: Sequence[str], names: Mapping[str, str], swept: bool = False
) -> dict:
    options = [(value, names.get(value, value)) for value in values]
    return {"name": name, "label": label, "swept": swept, "options": options}
